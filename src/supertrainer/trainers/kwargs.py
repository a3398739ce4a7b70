"""Keys of third-party classes: which one place decides here, and which leave a result alone. No torch."""

from __future__ import annotations

from collections.abc import Mapping

_DERIVED = "it follows from trainer.global_batch_size, per_device_train_batch_size and the number of processes."
_HUB = "a trained model is published by an export, not while it trains."
_OPERATION = "the word `operation` says what is done: train, infer, benchmark, check or verify."
_BATCHING = "trainer.batching=length or random."
_TRACKER = "tracker=tensorboard or none."
_NOT_TRAINED = "init_lora_weights=pissa or olora, use_dora=true or use_rslora=true."
_BEST = "trainer.select=best takes the weights with the best metric.main."

REFUSED_TRAINING_KWARGS: Mapping[str, str] = {
    "output_dir": "run.root and run.name say where a run is.",
    "gradient_accumulation_steps": _DERIVED,
    "save_total_limit": "trainer.keep_last.",
    "load_best_model_at_end": _BEST,
    "metric_for_best_model": "metric.main.",
    "greater_is_better": "metric.greater_is_better.",
    "seed": "run.seed.",
    "data_seed": "run.seed.",
    "full_determinism": "run.deterministic.",
    "report_to": _TRACKER,
    "run_name": "run.name.",
    "project": _TRACKER,
    "resume_from_checkpoint": "nothing: the same command resumes by itself; run.fresh=true starts anew.",
    "ignore_data_skip": "nothing: a resumed run goes on with the row after the last one that it trained on.",
    "restore_callback_states_from_checkpoint": "nothing: what has to go on after a resume does.",
    "push_to_hub": _HUB,
    "hub_model_id": _HUB,
    "hub_strategy": _HUB,
    "hub_token": _HUB,
    "hub_private_repo": _HUB,
    "hub_always_push": _HUB,
    "hub_revision": _HUB,
    "do_train": _OPERATION,
    "do_eval": _OPERATION,
    "do_predict": _OPERATION,
    "remove_unused_columns": "dataset.columns says which columns are read.",
    "label_names": "dataset.columns.label.",
    "train_sampling_strategy": _BATCHING,
    "length_column_name": _BATCHING,
    "dataloader_drop_last": "nothing: every row is trained on in every epoch, and a short step weighs right.",
    "auto_find_batch_size": "per_device_train_batch_size; trainer.global_batch_size and the result stay the same.",
    "average_tokens_across_devices": "nothing: every row of a step weighs the same, wherever it is.",
    "prediction_loss_only": "metric names what is computed.",
    "include_for_metrics": "metric names what is computed.",
    "batch_eval_metrics": "nothing: metrics always stream.",
    "eval_accumulation_steps": "nothing: evaluation never holds the logits of all rows.",
    "eval_do_concat_batches": "nothing: evaluation never holds the logits of all rows.",
    "eval_use_gather_object": "nothing: processes add up their metrics.",
    "save_only_model": "nothing: a run can be resumed and extended only from full checkpoints.",
    "save_on_each_node": "nothing: the first process writes the run directory.",
    "enable_jit_checkpoint": "nothing: a signal saves at the next step.",
    "logging_nan_inf_filter": "nothing: a loss that isn't finite ends the run with an error.",
    "include_num_input_tokens_seen": "nothing: metrics.jsonl counts tokens.",
    "skip_memory_metrics": "nothing: metrics.jsonl has peak_memory_gib.",
    "log_on_each_node": "nothing: the first process logs.",
    "log_level": "SUPERTRAINER_LOG_LEVEL or --verbose where the entry point offers it.",
    "log_level_replica": "nothing: the first process logs.",
    "use_cpu": "nothing: a GPU is used where there is one; CUDA_VISIBLE_DEVICES= hides it.",
    "accelerator_config": "nothing: batches, accumulation and seeds are this trainer's.",
    "neftune_noise_alpha": "nothing: noise in the embeddings is not reproduced by a resume.",
    "use_liger_kernel": "nothing: its kernels make losses of their own, and the loss of a step is exact here.",
    "use_cache": "nothing: a cache of past tokens is of no use in training.",
    "torch_empty_cache_steps": "nothing: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True serves the same end.",
    "parallelism_config": "nothing: fine-tuning runs data parallel.",
    "deepspeed": "nothing: fine-tuning runs data parallel.",
    "fsdp": "nothing: fine-tuning runs data parallel.",
    "fsdp_config": "nothing: fine-tuning runs data parallel.",
}

# What changes neither the weights nor which of them are kept.
CADENCE_KWARGS = frozenset(
    {
        "per_device_train_batch_size",
        "per_device_eval_batch_size",
        "logging_strategy",
        "logging_steps",
        "logging_first_step",
        "save_strategy",
        "save_steps",
        "disable_tqdm",
        "dataloader_num_workers",
        "dataloader_prefetch_factor",
        "dataloader_persistent_workers",
        "dataloader_pin_memory",
        "dataloader_multiprocessing_context",
        "dataloader_in_order",
        "ddp_timeout",
        "ddp_bucket_cap_mb",
        "ddp_backend",
        "ddp_find_unused_parameters",
        "ddp_broadcast_buffers",
        "ddp_static_graph",
        "debug",
    }
)

REFUSED_PEFT_KWARGS: Mapping[str, str] = {
    "task_type": "model.task says it.",
    "base_model_name_or_path": "model.source.",
    "revision": "model.revision.",
    "inference_mode": "nothing: an adapter is trained here.",
    "peft_type": "nothing: LoRA; use_dora, use_rslora and init_lora_weights choose its kin.",
    "eva_config": _NOT_TRAINED,
    "corda_config": _NOT_TRAINED,
    "lora_ga_config": _NOT_TRAINED,
    "loftq_config": _NOT_TRAINED,
    "kasa_config": _NOT_TRAINED,
    "velora_config": _NOT_TRAINED,
    "monteclora_config": _NOT_TRAINED,
    "arrow_config": _NOT_TRAINED,
    "use_bdlora": _NOT_TRAINED,
    "use_qalora": _NOT_TRAINED,
    "alora_invocation_tokens": "nothing: an adapter that is on for a part of a text can't be merged or exported.",
    "layer_replication": "nothing: build another architecture with model.config.",
    "megatron_config": "nothing: models are those of transformers.",
    "auto_mapping": "nothing: it is filled in when the adapter is saved.",
    "peft_version": "nothing: it is filled in when the adapter is saved.",
}

REFUSED_BITSANDBYTES_KWARGS: Mapping[str, str] = {
    "llm_int8_enable_fp32_cpu_offload": "nothing: an encoder is held on one device.",
    "llm_int8_has_fp16_weight": "nothing: frozen weights are held in 8 bits only.",
}
