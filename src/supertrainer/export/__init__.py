"""Trained models as others take them: an adapter merged into its base, as a plain Hugging Face directory.

    schema   the config classes, no torch      measure   how far one model's logits are from another's
    merge    the merge, its measure, its files

May import inference, models, data, metrics, checkpoint, config and core.
"""
