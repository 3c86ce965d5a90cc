"""What the judge is said to see, and the test that holds each line of it."""

import ast
from pathlib import Path

import pytest

HERE = Path(__file__).parent
LADDER, PLACES = "conformance/judging/test_ladder.py::", "conformance/diagnosis/test_places.py::"
NAMED, CASES = "conformance/diagnosis/test_diagnosis.py::", "conformance/judging/test_bug_cases.py::"
POLICIES, SERVERS = "adversary/test_policies.py::", "conformance/engines/test_http_server.py::"
VECTORS, FAMILIES = (
    "conformance/case_vectors/test_vectors_judge.py::",
    "conformance/judging/test_tokenizer_families.py::",
)
ROWS = {
    "lengths, long states, pieces, sessions, instances": (
        f"{LADDER}test_what_is_wrong_in_one_place_fails_that_level_alone"
    ),
    "every id, in prefills and in steps": f"{LADDER}test_every_id_is_read_in_prefills_and_in_steps",
    "every id, whichever": f"{LADDER}test_every_id_is_read",
    "edges of 64 to 512, the table of the page": (
        "conformance/judging/test_judging_page.py::test_the_table_of_coverage_is_what_the_ladder_asks"
    ),
    "coverage, and the chance of having missed 1 %": f"{LADDER}test_a_right_engine_passes_and_its_coverage_is_said",
    "no verdict without coverage": f"{LADDER}test_a_report_with_a_verdict_has_its_coverage",
    "calls that are timed are compared": f"{LADDER}test_a_wrong_answer_has_no_speed",
    "a nonce as seed": f"{LADDER}test_a_nonce_is_another_seed_each_time_and_the_command_repeats_it",
    "golden logits kept by content": f"{LADDER}test_golden_logits_are_kept_by_content",
    "a plan of ten minutes for a 2B model": f"{LADDER}test_a_ladder_fits_its_model",
    "right paths beside a wrong one": f"{LADDER}test_after_a_failure_sessions_with_broken_ties_are_still_right",
    "loops and text fail a check": (
        "conformance/judging/test_ask_once.py::test_a_fault_of_behaviours_alone_does_not_conform"
    ),
    "cheats": "conformance/engines/test_cheats.py::test_a_cheat_is_no_pass",
    "a rounding mode left changed": (
        "conformance/engines/test_cheats.py::test_an_engines_rounding_mode_does_not_reach_the_golden_run"
    ),
    "a fault at one place, with its place": f"{PLACES}test_a_fault_at_a_place_is_named_with_it",
    "the same from statistics and logits": f"{PLACES}test_whole_runs_tell_a_place_too",
    "a fault at one head": f"{PLACES}test_a_fault_at_a_head_is_named_with_it",
    "layouts misread, code 3 refused or not": (f"{NAMED}test_a_layout_misread_is_named_whatever_is_done_with_code_3"),
    "half away from zero says how few codes": f"{NAMED}test_a_fault_of_codes_says_how_many_of_the_text_it_touches",
    "per-tensor is one fault": f"{NAMED}test_one_scale_for_the_batch_is_one_fault",
    "an engine that only diffuses, judged": "conformance/judging/test_diffuse_only.py::test_what_it_writes_decides",
    "an engine that only diffuses, diagnosed": (
        "conformance/judging/test_diffuse_only.py::test_a_right_one_is_told_which_faults_it_could_not_have_shown"
    ),
    "a right engine within a policy": f"{POLICIES}test_right_engines_conform_to_what_they_declare",
    "a wrong engine within each policy": f"{POLICIES}test_a_fault_within_a_policy_is_found",
    "no policy by itself": f"{POLICIES}test_undeclared_they_do_not_conform",
    "a server's one bad answer": f"{SERVERS}test_one_bad_answer_is_one_position",
    "a server is diagnosed": "conformance/diagnosis/test_shown_tokens.py::test_a_fault_is_named_from_twenty_tokens",
    "a server of chats by its text": (
        "conformance/engines/test_chat_server.py::test_a_server_that_refuses_log_probabilities_is_judged_by_its_text"
    ),
    "tokenizers of several families": f"{FAMILIES}test_wrong_readings_are_seen",
    "another family's splitting": f"{FAMILIES}test_another_familys_splitting_is_seen",
    "half characters in streams": f"{CASES}test_an_emoji_of_several_tokens_comes_out_whole_or_not_at_all",
    "chat templates": "conformance/chat/test_chat.py::test_common_templates_give_what_transformers_gives",
    "numbers of tokens at which kernels fail": (
        f"{CASES}test_a_kernel_that_fails_for_some_numbers_of_tokens_fails_by_that_rule"
    ),
    "rules over cases say no more than was seen": f"{VECTORS}test_no_rule_is_made_of_little_or_of_what_contradicts_it",
    "lanes of int16 at the width of real models": (
        f"{CASES}test_lanes_that_hold_4096_products_wrap_at_the_width_of_real_models_and_are_told_as_such"
    ),
    "I2_S matrices of no whole block in inspect": (
        "conformance/inspecting/test_inspection.py::test_an_i2_s_matrix_that_is_no_block_is_looked_at"
    ),
    "subnormal scales on the JAX engine": (
        "accelerated/test_stacked_linear.py::test_a_scale_that_would_be_flushed_to_zero_is_refused"
    ),
}


@pytest.mark.parametrize("row", ROWS)
def test_a_row_has_its_test(row: str) -> None:
    file, _, name = ROWS[row].partition("::")
    defined = {n.name for n in ast.walk(ast.parse((HERE / file).read_text("utf-8"))) if isinstance(n, ast.FunctionDef)}
    assert name in defined
