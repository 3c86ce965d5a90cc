"""What people have on disk, and the test that holds what happens with it: docs/models.md, row by row."""

import ast
from pathlib import Path

import pytest

HERE = Path(__file__).parent
# What was silently wrong, what was refused though it is good, what is accepted and must be said.
ROWS = {
    "split GGUF: any shard opens the whole": "reference/formats/test_gguf_split.py::test_any_shard_opens_the_whole",
    "split GGUF: a shard alone": "reference/formats/test_gguf_split.py::test_a_shard_alone_says_which_it_is",
    "split GGUF: counts that contradict": "reference/formats/test_gguf_split.py::test_keys_that_contradict",
    "trit x scale in floats": "reference/test_unpacked_ternary.py::test_trits_times_one_scale_open_as_that",
    "a lossy step is called one": "reference/test_unpacked_ternary.py::test_a_rounded_embedding_is_a_loss",
    "stop ids of three files": (
        "reference/test_stop_ids.py::test_generation_config_goes_before_config_in_every_container"
    ),
    "stop ids outside the vocabulary": (
        "reference/test_stop_ids.py::test_ids_outside_the_vocabulary_are_left_out_of_every_container"
    ),
    "padded vocabulary": (
        "conformance/commands/test_padded_vocabulary.py::test_ids_without_text_are_chosen_only_where_that_is_asked_for"
    ),
    "embedding and head in Q4_K, Q6_K ...": "reference/test_dense_layers.py::test_it_opens_runs_and_converts",
    "Qwen2, Qwen3, Granite, Gemma 3": "reference/test_architectures.py::test_the_entry_and_its_parts",
    "MiniCPM": "reference/formats/test_public_families.py::test_what_is_said_of_a_family",
    "RoPE llama3": "reference/formats/test_rope_formulas.py::test_llama3_as_its_reference_code_has_it",
    "RoPE yarn": "reference/formats/test_rope_formulas.py::test_yarn_as_its_reference_code_has_it",
    "falcon_e": (
        "conformance/commands/test_given_tokenizer.py::test_convert_takes_the_tokenizer_that_its_own_refusal_names"
    ),
    "vendor keys": (
        "reference/formats/test_gguf_config.py::test_keys_of_who_published_the_file_are_passed_over_with_one_note"
    ),
    "several scales a tensor": "reference/test_unpacked_ternary.py::test_several_scales_are_applied_row_by_row",
    "BitNet without sub-norms": "reference/test_architectures.py::test_a_bitnet_without_sub_norms_is_read_as_one",
    "modules_to_not_convert": "reference/formats/test_kept_modules.py::test_lists_in_a_configuration",
    "IQ1_BN, IQ2_BN, IQ2_BN_R4": "reference/formats/packings/test_iq_bn.py::*",
    "overlays": "reference/formats/test_safetensors_folder.py::test_the_index_decides_between_copies_and_that_is_said",
    "a copy of the head in another type": (
        "reference/test_metadata_leniency.py::test_a_copy_of_the_tied_head_in_another_dtype_is_the_same"
    ),
    "neutral keys": "reference/test_metadata_leniency.py::test_neutral_keys",
    "alignment 24": "reference/test_metadata_leniency.py::test_alignments_are_multiples_of_8",
    "chat templates": "conformance/chat/test_chat.py::test_common_templates_give_what_transformers_gives",
    "codes in surplus rows": (
        "conformance/inspecting/test_health.py::test_surplus_rows_of_a_packed_folder_are_no_weights"
    ),
    "file_type that contradicts": "conformance/inspecting/test_health.py::test_a_label_that_no_tensor_bears_out",
    "several broken shards": "reference/formats/test_safetensors_folder.py::test_all_broken_shards_are_named",
    "several broken shards of GGUF": "reference/formats/test_gguf_split.py::test_all_broken_shards_are_named",
    "cache blocks across heads": "conformance/commands/test_run.py::test_blocks_of_a_cache_across_heads_are_said",
    "YAML of the notebooks: a server": "conformance/commands/test_server_config.py::test_the_documented_file",
    "YAML of the notebooks: sparsity, attention, generation": (
        "conformance/commands/test_server_config.py::test_sections_of_the_notebooks_other_files_are_options"
    ),
    "scores that are not divided by the root of head_dim": (
        "reference/test_architectures.py::test_a_factor_of_the_scores_is_kept_or_refused"
    ),
    "biases beside stored scales": (
        "reference/test_architectures.py::test_stored_scales_that_multiply_multiply_the_bias_too"
    ),
    "RoPE dynamic": "reference/test_architectures.py::test_dynamic_rope_is_plain_within_the_original_context",
    "alignment in another value type": "reference/formats/test_gguf_file.py::test_alignment_may_be_any_integer_type",
    "a stop that is not the first of the list": (
        "conformance/questions/test_behaviours.py::test_a_loop_that_knows_the_first_stop_alone_writes_on"
    ),
    "as llama-quantize leaves it": "peers/test_quantised.py::test_every_log_probability_agrees",
    "as ik_llama.cpp leaves it": "peers/test_quantised.py::test_files_of_ik_llama_open_as_the_source",
    "use_rms_norm": "reference/formats/test_public_families.py::test_what_is_said_of_a_family",
    "--ignore-key wherever a file is opened": "conformance/commands/test_hints.py::test_a_hint_that_is_followed_helps",
    "model_type beside architectures": (
        "reference/formats/test_hf_config.py::test_a_model_type_of_another_architecture_is_said"
    ),
    "files that are not what they are called": (
        "reference/formats/test_other_files.py::test_what_is_no_gguf_is_called_what_it_is"
    ),
    "NaN by its place": "reference/test_metadata_leniency.py::test_a_number_that_is_not_finite_has_a_place",
}


@pytest.mark.parametrize("row", ROWS)
def test_a_row_has_its_test(row: str) -> None:
    file, _, name = ROWS[row].partition("::")
    defined = {n.name for n in ast.walk(ast.parse((HERE / file).read_text("utf-8"))) if isinstance(n, ast.FunctionDef)}
    assert name in defined if name != "*" else any(found.startswith("test_") for found in defined)
