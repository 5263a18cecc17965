"""Loads sentence-transformers models, and checks that they are what their own files describe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from ..errors import RecipeError, first_line

EmbeddingDtype = Literal["float32", "bfloat16"]
PoolingMode = Literal["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]
AttentionKind = Literal["bidirectional", "causal"]


class ModelOptions(NamedTuple):
    """How a model is loaded, where its own files do not say it or are not to be followed.

    Attributes:
        attention: which tokens see which; None: as `is_causal` in its config.json says.
        pooling: how the vectors of tokens become one; None: as its own pooling module says.
        append_eos: ends each text with the EOS token, also where the tokenizer does not.
        prompt: is put before each text; None: the model's default prompt, if it has one.
        trust_remote_code: runs the code that comes with the model.
    """

    attention: AttentionKind | None = None
    pooling: PoolingMode | None = None
    append_eos: bool = False
    prompt: str | None = None
    trust_remote_code: bool = False


BY_ITS_OWN_FILES = ModelOptions()


def load_model(model: str, dtype: EmbeddingDtype, device: str | None, options: ModelOptions) -> Any:
    """A `SentenceTransformer` in evaluation mode.

    Raises:
        RecipeError: the library or the model is missing, or the model that was loaded is not the
            one that its files or the options describe.
    """
    try:
        import torch
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise RecipeError(
            f"backend sentence_transformers does not import: {error}",
            "pip install 'rejuice[embed]'",
        ) from error
    is_causal = {"is_causal": options.attention == "causal"} if options.attention else {}
    try:
        loaded = SentenceTransformer(
            model,
            device=device,
            trust_remote_code=options.trust_remote_code,
            model_kwargs={"dtype": getattr(torch, dtype)},
            config_kwargs=is_causal,
        ).eval()
    except Exception as error:  # Code that comes with a model raises anything.
        if not (options.trust_remote_code or isinstance(error, OSError | ValueError)):
            raise
        raise _does_not_load(model, error, options) from error
    if is_causal and loaded.transformers_model is not None:
        # transformers drops `config_kwargs` whose names are not in the model's config.json.
        loaded.transformers_model.config.update(is_causal)
    if options.pooling is not None:
        _set_pooling(loaded, model, options.pooling)
    _end_with_eos(loaded, model, options)
    _check_attention(loaded, model, options)
    return loaded


def default_prompt(loaded: Any) -> str:
    """The prompt that the model's own files put before each text; empty: none."""
    name = loaded.default_prompt_name
    return (loaded.prompts.get(name) or "") if name else ""


def prompt_length(loaded: Any, prompt: str) -> int | None:
    """Tokens of the prompt that the model's pooling leaves out; None: it leaves out none."""
    if not prompt or all(getattr(module, "include_prompt", True) for module in loaded):
        return None
    length: int | None = loaded[0].preprocess(["x"], prompt=prompt).get("prompt_length")
    return length


def _does_not_load(model: str, error: Exception, options: ModelOptions) -> RecipeError:
    found = f"embedding model '{model}' does not load: {first_line(error).rstrip('.')}"
    right = (
        "set model to a folder or to the name of a sentence-transformers model that is "
        "downloaded or can be"
    )
    if options.trust_remote_code and not isinstance(error, OSError):
        right = "its own code may need another version of transformers; trust_remote_code: false"
    elif "trust_remote_code" in str(error):
        right = "it runs only with code of its own: read it, then set trust_remote_code: true"
    return RecipeError(found, right)


def _set_pooling(loaded: Any, model: str, pooling: PoolingMode) -> None:
    from sentence_transformers.sentence_transformer.modules import Pooling

    for place, module in enumerate(loaded):
        if isinstance(module, Pooling):
            dimension, include_prompt = module.embedding_dimension, module.include_prompt
            loaded[place] = Pooling(dimension, pooling, include_prompt)
            return
    raise RecipeError(
        f"embedding model '{model}' has no pooling module, which pooling: {pooling} would change",
        "leave pooling out",
    )


def _end_with_eos(loaded: Any, model: str, options: ModelOptions) -> None:
    """Append the EOS token where it is wanted and the tokenizer does not do it by itself.

    transformers ignores `add_eos_token` of a tokenizer_config.json that has a tokenizer.json beside
    it, as that of GTE-Qwen2, whose own tokenizer class would append it.
    """
    from transformers.models.auto.tokenization_auto import get_tokenizer_config

    tokenizer = loaded.tokenizer
    name = getattr(tokenizer, "name_or_path", "")
    stated = bool(name) and get_tokenizer_config(name).get("add_eos_token") is True
    if not (stated or options.append_eos):
        return
    ids, eos = tokenizer(_PROBE)["input_ids"], tokenizer.eos_token_id
    if eos is not None and ids[-1] == eos:
        return
    tokenizer.add_eos_token = True
    if eos is None or tokenizer(_PROBE)["input_ids"] != [*ids, eos]:
        raise RecipeError(
            f"the tokenizer of embedding model '{model}' cannot append an EOS token",
            "set append_eos: false, or trust_remote_code: true if it has code of its own",
        )


_PROBE = "one two three four five six"


def _check_attention(loaded: Any, model: str, options: ModelOptions) -> None:
    """Check that tokens see those that they are meant to see, by what the model computes."""
    transformer = loaded.transformers_model
    if transformer is None:
        return
    wanted = options.attention
    if wanted is None and getattr(transformer.config, "is_causal", None) is False:
        wanted = "bidirectional"
    if wanted is None:
        _check_code(transformer, model)
        return
    if attention_kinds(loaded) != {wanted}:
        source = "attention" if options.attention else "is_causal: false in its config.json"
        raise RecipeError(
            f"embedding model '{model}' was loaded as {type(transformer).__name__}, whose "
            f"attention is not {wanted}, as {source} says",
            "another version of transformers, or trust_remote_code: true if it has code of its own",
        )


def _check_code(transformer: Any, model: str) -> None:
    """Refuse a class of transformers in place of the one that comes with the model."""
    own = (getattr(transformer.config, "auto_map", None) or {}).get("AutoModel")
    if own is None or not type(transformer).__module__.startswith("transformers."):
        return
    raise RecipeError(
        f"embedding model '{model}' comes with a class of its own, {str(own).split('--')[-1]}, and "
        f"was loaded as {type(transformer).__name__} of transformers, which may differ from it",
        "set attention to what its card says, bidirectional or causal, or trust_remote_code: true "
        "after reading its code",
    )


def attention_kinds(loaded: Any) -> set[AttentionKind]:
    """The kinds of attention that the model computes, without padding and with it.

    A text whose last token is changed leaves the vectors of the tokens before it as they were, to
    the bit, if and only if these do not see it.
    """
    ids: list[int] = loaded.tokenizer(_PROBE)["input_ids"]
    other = next(token for token in ids if token != ids[-1])
    found = set[AttentionKind]()
    for company in (ids, [*ids, *ids]):
        one, two = (_early(loaded, [first, company]) for first in (ids, [*ids[:-1], other]))
        found.add("causal" if bool((one == two).all()) else "bidirectional")
    return found


def _early(loaded: Any, texts: Sequence[Sequence[int]]) -> Any:
    """The vectors of the first text's tokens, without its last."""
    import torch

    features = loaded.tokenizer.pad({"input_ids": list(map(list, texts))}, return_tensors="pt")
    features = dict(features.to(loaded.device))
    mask = features["attention_mask"][0].bool()
    with torch.inference_mode():
        return loaded[0](features)["token_embeddings"][0][mask][:-1]
