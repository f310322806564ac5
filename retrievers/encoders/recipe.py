"""The recipe of an encoder's vectors: its own files, as sentence-transformers writes them, or the config.

`modules.json` lists what follows the network: pooling (`1_Pooling/config.json`), layers (`2_Dense/`), scaling to length 1;
`config_sentence_transformers.json` has the prompts. They are read as sentence-transformers 6 reads them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from cluster.errors import RetrieverError
from retrievers.models import description, file_hash, local_folder, read_json
from retrievers.settings import EncoderSettings

_MODES = {"cls": "cls", "mean": "mean", "lasttoken": "last"}
_OLD_MODES = {  # how sentence-transformers before 5.7 wrote them
    "pooling_mode_cls_token": "cls", "pooling_mode_max_tokens": "max", "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens", "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}  # fmt: skip
_PASSAGE_PROMPTS = ("document", "passage", "corpus")
_POOLING = Path("1_Pooling", "config.json")


# `model_type`s of transformers that have a class for causal LMs and none for masked LMs; tests compare the two.
CAUSAL_TYPES = frozenset(
    {
        "arcee", "bitnet", "bloom", "codegen", "cohere", "cohere2", "deepseek_v2", "deepseek_v3", "ernie4_5", "exaone4",
        "falcon", "falcon_h1", "falcon_mamba", "gemma", "gemma2", "gemma3", "gemma3_text", "gemma3n", "gemma3n_text",
        "gemma4", "gemma4_text", "glm", "glm4", "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox", "gpt_oss", "gptj", "granite",
        "granitemoe", "granitemoehybrid", "helium", "jamba", "lfm2", "llama", "llama4", "llama4_text", "mamba", "mamba2",
        "minicpm3", "ministral", "ministral3", "mistral", "mixtral", "modernbert-decoder", "mpt", "nemotron", "olmo",
        "olmo2", "olmo3", "olmoe", "opt", "phi", "phi3", "phimoe", "qwen2", "qwen2_moe", "qwen3", "qwen3_5", "qwen3_5_text",
        "qwen3_moe", "qwen3_next", "recurrent_gemma", "rwkv", "seed_oss", "smollm3", "stablelm", "starcoder2", "vaultgemma",
        "xglm", "zamba", "zamba2",
    }
)  # fmt: skip


def is_causal(config: Mapping[str, Any]) -> bool:
    """Returns True if transformers makes a causal network of a model's config.json.

    Decoders that were trained with attention in both directions say so there (`is_causal`, `use_bidirectional_attention`).
    """
    if config.get("is_causal") is False or config.get("use_bidirectional_attention"):
        return False
    kind = str(config.get("model_type"))
    generates = any(str(name).endswith("ForCausalLM") for name in config.get("architectures") or [])
    return kind in CAUSAL_TYPES or generates or bool(config.get("is_decoder"))


def behaves_causally(network: Any, device: str) -> bool:
    """Returns True if the state of a loaded network's first token is the same whatever follows it. Cost: one small pass.

    It also finds what config.json does not tell: code beside the weights, and types that are not in `CAUSAL_TYPES`.
    """
    import torch

    vocabulary = int(getattr(network.config, "vocab_size", 0) or 32)
    first, *others = (vocabulary // part for part in (2, 3, 4, 5, 6))
    ids = torch.tensor([[first, others[0], others[1]], [first, others[2], others[3]]], device=device)
    with torch.inference_mode():
        hidden = network(input_ids=ids, attention_mask=torch.ones_like(ids), return_dict=True).last_hidden_state
    short, long = hidden[0, 0].float(), hidden[1, 0].float()
    return float((short - long).norm()) <= 1e-4 * float(short.norm())


class Layer(NamedTuple):
    """A layer after pooling."""

    kind: str  # "Dense" or "Normalize"
    path: str  # its folder below the model's


class Recipe(NamedTuple):
    """The way from a text to its vector, beside the network."""

    pooling: str  # "cls", "mean" or "last"
    query_prefix: str  # before each query
    passage_prefix: str  # before each passage
    layers: tuple[Layer, ...] = ()  # between pooling and the last scaling to length 1, in order
    pooling_is_own: bool = False  # whether the model's files say this pooling
    notes: tuple[str, ...] = ()  # what somebody who reads the results should know, a line each

    def identity(self, model: str) -> dict[str, Any]:
        """Returns the part of it that determines the vectors, as JSON values; the weights of layers by content or commit."""
        layers = [f"{one.kind}{_content(model, one)}" for one in self.layers]
        plain = {"pooling": self.pooling, "query_prefix": self.query_prefix, "passage_prefix": self.passage_prefix}
        return plain | ({"layers": layers} if layers else {})


def encoder_error(model: str, problem: str) -> RetrieverError:
    """Returns the error for a model that cannot be an encoder here."""
    return RetrieverError("model", f"encoder {model}: {problem}")


def read_recipe(settings: EncoderSettings) -> Recipe:
    """Returns the recipe that the config and the model's files give; reads JSON files only."""
    model = settings.model
    folder = description(model)
    own, layers, whole_text = _modules(model, folder, settings.pooling is None)
    values = read_json(folder / "config_sentence_transformers.json")
    prompts = {str(name): str(text or "") for name, text in (values.get("prompts") or {}).items()}
    query = prompts.get("query", "")
    passage = next((prompts[name] for name in _PASSAGE_PROMPTS if prompts.get(name)), "")
    query_prefix = query if settings.query_prefix is None else settings.query_prefix
    passage_prefix = passage if settings.passage_prefix is None else settings.passage_prefix
    if not whole_text and (query_prefix or passage_prefix):
        problem = "its pooling leaves out the prompt (include_prompt: false), which is not supported"
        raise encoder_error(model, f'{problem}; set query_prefix and passage_prefix to "", or name another')
    pooling = settings.pooling or own or "cls"
    recipe = Recipe(pooling, query_prefix, passage_prefix, layers, own == pooling)
    check_pooling(settings, recipe)
    notes = []
    if own is None and settings.pooling is None:
        notes.append("its files do not say how the vectors of tokens become one, so pooling cls is taken; set pooling")
    if own is not None and settings.pooling not in (None, own):
        notes.append(f"pooling is {settings.pooling} by the config, and {own} by the model")
    named = [name for name, text in prompts.items() if text]
    if settings.query_prefix is None and named and not query:
        prompts_named = f"the model has prompts ({', '.join(named)}) and none that is called query"
        notes.append(f"{prompts_named}, so none stands before queries; set query_prefix")
    for key, configured, own_prompt in (
        ("query_prefix", settings.query_prefix, query), ("passage_prefix", settings.passage_prefix, passage),
    ):  # fmt: skip
        if configured is not None and own_prompt not in ("", configured):
            notes.append(f"{key} is {configured!r} by the config, and {own_prompt!r} by the model")
    similarity = str(values.get("similarity_fn_name") or "cosine")
    if similarity != "cosine" and not (similarity == "dot" and layers[-1:] and layers[-1].kind == "Normalize"):
        notes.append(f"the model was made for the similarity {similarity!r}; here vectors have length 1, and the cosine counts")
    while layers and layers[-1].kind == "Normalize":  # all vectors are scaled at the end
        layers = layers[:-1]
    return recipe._replace(layers=layers, notes=tuple(notes))


def check_pooling(settings: EncoderSettings, recipe: Recipe, *, causal: bool | None = None) -> None:
    """Raises RetrieverError if a pooling does not fit the network, which is `causal`, or is not; None: by its config.json.

    The state of a causal network's first token is the same for all texts, and a mean is taken where the model was made for it.
    """
    config = read_json(description(settings.model) / "config.json")
    own_code = "AutoModel" in (config.get("auto_map") or {})
    if causal is None and (not is_causal(config) or (own_code and settings.trust_remote_code)):
        return
    kind = config.get("model_type")
    if causal is None and own_code:
        problem = f"it brings code of its own in place of the causal {kind} of transformers"
        raise encoder_error(settings.model, f"{problem}; set trust_remote_code: true if you trust it, or name another")
    if causal is False or recipe.pooling == "last" or (recipe.pooling == "mean" and recipe.pooling_is_own):
        return
    why = "which gives all texts one vector" if recipe.pooling == "cls" else "which its files (1_Pooling) do not say"
    problem = f"it is a causal model ({kind}), whose first token knows nothing of the others, and its pooling would be"
    remedy = "set pooling: last if it was trained so, or name another"
    raise encoder_error(settings.model, f"{problem} {recipe.pooling}, {why}; {remedy}")


def _modules(model: str, folder: Path, needed: bool) -> tuple[str | None, tuple[Layer, ...], bool]:
    """Returns the model's own pooling, the layers after it, and whether prompts count in pooling.

    Where `needed`, the pooling must be known, if there is one.
    """
    modules = read_json(folder / "modules.json", list)
    if not modules:
        if not (folder / _POOLING).is_file():
            return None, (), True
        modules = [{"type": "sentence_transformers.models.Pooling", "path": _POOLING.parent.name}]
    pooling: str | None = None
    whole_text = True
    layers: list[Layer] = []
    for module in modules:
        kind, path = str(module.get("type", "")), str(module.get("path", ""))
        name = kind.rpartition(".")[2] if kind.startswith("sentence_transformers.") else ""
        if name == "Transformer" and path in ("", ".") and not layers and pooling is None:
            continue
        if name == "Dropout":  # does nothing where nothing is trained
            continue
        if name == "Pooling" and pooling is None and not layers:
            pooling, whole_text = _pooling(model, folder / path, needed)
        elif name == "Normalize" or (name == "Dense" and pooling is not None):
            layers.append(Layer(name, path))
        else:
            problem = f"its modules.json has {kind} ({path or 'the network'}), which is not supported"
            raise encoder_error(model, f"{problem}: a transformer, pooling, Dense and Normalize are; name another")
    return pooling or None, tuple(layers), whole_text


def _pooling(model: str, folder: Path, needed: bool) -> tuple[str, bool]:
    values = read_json(folder / "config.json")
    if not values:
        if not needed:
            return "", True
        problem = f"its {folder.name}/config.json, which says how it pools, is missing"
        raise encoder_error(model, f"{problem}; fetch the whole model, or set pooling")
    given = values.get("pooling_mode") or [mode for key, mode in _OLD_MODES.items() if values.get(key)] or "mean"
    modes = [given] if isinstance(given, str) else list(given)
    if len(modes) != 1 or modes[0] not in _MODES:
        problem = f"its pooling is {' + '.join(map(str, modes))}, which is not supported ({', '.join(_MODES)} are)"
        raise encoder_error(model, f"{problem}; name another")
    return _MODES[modes[0]], bool(values.get("include_prompt", True))


def _content(model: str, layer: Layer) -> str:
    folder = local_folder(model)
    if layer.kind != "Dense":
        return ""
    return f" {layer.path}" if folder is None else f" {file_hash(folder / layer.path)}"
