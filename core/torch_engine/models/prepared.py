"""Models whose folder is made here first: `smollm2`, which is fetched once, and GGUF files."""

from core.config import SMOLLM2, model_source, models_folder
from core.torch_engine.models import gguf, smollm2
from core.torch_engine.models.names import folder_fault, is_gguf
from core.torch_engine.models.watch import Watch, nobody


def prepared(name: str, watch: Watch = nobody) -> str:
    """The folder of such a model, made now if it is missing; for any other model its source, see
    `model_source`. Raises UnsupportedModel if `smollm2` cannot be fetched, BadWeights for an
    unsupported file, and OSError if there is no room.
    """
    if name == SMOLLM2:
        smollm2.fetch(watch)
    elif is_gguf(name) and folder_fault(name) is None:
        folder = gguf.folder_for(name, models_folder() / "gguf")
        if not folder.exists():
            gguf.make_folder(name, folder, lambda done, total: watch("load", done, total))
        return str(folder)
    return model_source(name)
