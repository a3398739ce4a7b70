"""Rows with pictures for vision-language models: where pictures are, how rows are laid out, and what a model reads.

May import config, core and the rest of `data`. From a row to a batch:

    pictures             the pictures of rows: where each one is, and what its header says
    layouts              the layouts of a file's rows -> conversations with places for pictures
    processing           a model's processor: the tokens of a picture, its numbers, the template
    encoding, lengths    conversations -> token ids, labels and which tokens are of pictures
    encoder_decoder      rows divided into what an encoder reads and a decoder writes
    prompts              conversations, also of a file's columns -> what a generation gets
    rows                 rows as a model takes them: pictures are decoded when a batch is made
"""
