"""Documents for pretraining: files of any size -> rows of token ids, in an order that doesn't depend on who reads them.

May import config, core and the rest of `data`. From a file to a row:

    schema              the config class (no torch)
    patterns, files, reblocking  the files of a source, what is in them, compressed text made readable at any place
    units               what is opened at once, and its documents
    memmap              token ids in files: written once, read in place
    order               which document comes when, and which are held out: functions of a key, without state
    blocks              a source as blocks of documents, and the units that are open
    reading             the documents of one logical stream, and what is odd about them
    encoding            texts -> token ids with their beginning and end
    mixing              which source gives the next document
    logical             one logical stream: its place, its rows
    stream_count        how many logical streams there are
    rows, train_stream  the rows of each step, and the state behind them
    dataset             all of it behind one class
"""
