"""Operators on tables of rollouts.

    from rejuice.operators import Filter, drop          # write an operator
    from rejuice.operators import verify, verify_batch  # grade answers
    from rejuice.operators import PassRateFilter        # use a built-in operator

An operator is a frozen config with one pure function; see `operator.py` for the contract,
`docs/operators.md` for every built-in one.
"""

from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any

from ._version import __version__
from .columns import component, component_columns
from .errors import (
    DataError,
    EmptyResultError,
    EngineError,
    OperatorError,
    RecipeError,
    RejuiceError,
)
from .groups import Groups, uniform_N
from .operator import (
    ALL,
    Change,
    Columns,
    Filter,
    Kind,
    Mapper,
    Operator,
    ResumableOperator,
    RowsOfChunk,
    Scope,
    drop,
)
from .registry import OPERATORS, all_entry_points, build, get, installed

if TYPE_CHECKING:
    from .deduplicator.exact_deduplicator import ExactDeduplicator
    from .deduplicator.minhash_deduplicator import MinhashDeduplicator
    from .deduplicator.semantic_deduplicator import SemanticDeduplicator
    from .filter.column_range_filter import ColumnRangeFilter
    from .filter.column_value_filter import ColumnValueFilter
    from .filter.curriculum_filter import CurriculumFilter
    from .filter.group_size_filter import GroupSizeFilter
    from .filter.length_filter import LengthFilter
    from .filter.ngram_decontamination_filter import NgramDecontaminationFilter
    from .filter.pass_rate_filter import PassRateFilter
    from .filter.policy_age_filter import PolicyAgeFilter
    from .filter.retire_filter import RetireFilter
    from .filter.reward_std_filter import RewardStdFilter
    from .filter.truncated_response_filter import TruncatedResponseFilter
    from .filter.verification_filter import VerificationFilter
    from .mapper.agent_rollout_mapper import AgentRolloutMapper
    from .mapper.diversity_reward_mapper import DiversityRewardMapper
    from .mapper.format_reward_mapper import FormatRewardMapper
    from .mapper.gdpo_advantage_mapper import GdpoAdvantageMapper
    from .mapper.group_stats_mapper import GroupStatsMapper
    from .mapper.grpo_advantage_mapper import GrpoAdvantageMapper
    from .mapper.history_mapper import HistoryMapper
    from .mapper.importance_weight_mapper import ImportanceWeightMapper
    from .mapper.judgement_reward_mapper import JudgementRewardMapper
    from .mapper.length_reward_mapper import LengthRewardMapper
    from .mapper.llm_quality_reward_mapper import LlmQualityRewardMapper
    from .mapper.llm_verify_mapper import LlmVerifyMapper
    from .mapper.loss_weight_mapper import LossWeightMapper
    from .mapper.math_verify_mapper import MathVerifyMapper
    from .mapper.pass_at_k_advantage_mapper import PassAtKAdvantageMapper
    from .mapper.policy_rollout_mapper import PolicyRolloutMapper
    from .mapper.prompt_template_mapper import PromptTemplateMapper
    from .mapper.rank_reward_mapper import RankRewardMapper
    from .mapper.recorded_rollout_mapper import RecordedRolloutMapper
    from .mapper.reward_function_mapper import RewardFunctionMapper
    from .mapper.reward_model_mapper import RewardModelMapper
    from .mapper.reward_sum_mapper import RewardSumMapper
    from .mapper.rule_quality_reward_mapper import RuleQualityRewardMapper
    from .mapper.self_verification_mapper import SelfVerificationMapper
    from .mapper.self_verified_vote_mapper import SelfVerifiedVoteMapper
    from .mapper.token_weight_mapper import TokenWeightMapper
    from .mapper.turn_advantage_mapper import TurnAdvantageMapper
    from .mapper.unit_test_mapper import UnitTestMapper
    from .mapper.verdict_recheck_mapper import VerdictRecheckMapper
    from .selector.difficulty_selector import DifficultySelector
    from .selector.diverse_response_selector import DiverseResponseSelector
    from .selector.label_balance_selector import LabelBalanceSelector
    from .selector.replay_selector import ReplaySelector
    from .selector.source_quota_selector import SourceQuotaSelector
    from .verifier import Verdict, extract_answer, verify, verify_batch

__all__ = [
    "ALL",
    "AgentRolloutMapper",
    "Change",
    "ColumnRangeFilter",
    "ColumnValueFilter",
    "Columns",
    "CurriculumFilter",
    "DataError",
    "DifficultySelector",
    "DiverseResponseSelector",
    "DiversityRewardMapper",
    "EmptyResultError",
    "EngineError",
    "ExactDeduplicator",
    "Filter",
    "FormatRewardMapper",
    "GdpoAdvantageMapper",
    "GroupSizeFilter",
    "GroupStatsMapper",
    "Groups",
    "GrpoAdvantageMapper",
    "HistoryMapper",
    "ImportanceWeightMapper",
    "JudgementRewardMapper",
    "Kind",
    "LabelBalanceSelector",
    "LengthFilter",
    "LengthRewardMapper",
    "LlmQualityRewardMapper",
    "LlmVerifyMapper",
    "LossWeightMapper",
    "Mapper",
    "MathVerifyMapper",
    "MinhashDeduplicator",
    "NgramDecontaminationFilter",
    "Operator",
    "OperatorError",
    "PassAtKAdvantageMapper",
    "PassRateFilter",
    "PolicyAgeFilter",
    "PolicyRolloutMapper",
    "PromptTemplateMapper",
    "RankRewardMapper",
    "RecipeError",
    "RecordedRolloutMapper",
    "RejuiceError",
    "ReplaySelector",
    "ResumableOperator",
    "RetireFilter",
    "RewardFunctionMapper",
    "RewardModelMapper",
    "RewardStdFilter",
    "RewardSumMapper",
    "RowsOfChunk",
    "RuleQualityRewardMapper",
    "Scope",
    "SelfVerificationMapper",
    "SelfVerifiedVoteMapper",
    "SemanticDeduplicator",
    "SourceQuotaSelector",
    "TokenWeightMapper",
    "TruncatedResponseFilter",
    "TurnAdvantageMapper",
    "UnitTestMapper",
    "Verdict",
    "VerdictRecheckMapper",
    "VerificationFilter",
    "__version__",
    "build",
    "component",
    "component_columns",
    "drop",
    "extract_answer",
    "get",
    "installed",
    "uniform_N",
    "verify",
    "verify_batch",
]


_VERIFIER = ("Verdict", "extract_answer", "verify", "verify_batch")


@cache
def _by_class() -> dict[str, EntryPoint]:
    # Also those whose names another distribution has registered, too.
    points = all_entry_points().select(group=OPERATORS.group)
    return {p.attr: p for p in points if p.module.startswith(f"{__name__}.")}


if not TYPE_CHECKING:  # So that mypy knows the names above, and no others.

    def __getattr__(name: str) -> Any:
        # Lazy: the verifier and each built-in operator are imported when they are first used.
        if name in _VERIFIER:
            return getattr(import_module(".verifier", __name__), name)
        found: EntryPoint | None = _by_class().get(name)
        if found is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return found.load()
