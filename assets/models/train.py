"""Train the built-in models on one text file and save them as ordinary Hugging Face folders.

    python assets/models/train.py tinyshakespeare.txt                            # both models
    python assets/models/train.py tinyshakespeare.txt --model shakespeare-char

The first nine tenths of the characters are trained on; the last tenth is only measured. The loss
printed at the end is that of the saved 16-bit file, loaded again as any reader loads it. Knows
nothing about the engine: a folder written here is a plain `transformers` checkpoint.
"""

import argparse
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR
from tqdm import tqdm
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    LlamaConfig,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

EOS = "<|endoftext|>"


def char_tokenizer(text: str) -> PreTrainedTokenizerFast:
    """One token a character. `<unk>` has no id, so a character the text lacks is refused, not
    dropped.
    """
    vocab = {character: i for i, character in enumerate(sorted(set(text)))}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False)


def bpe_tokenizer(text: str, vocab_size: int = 2048) -> PreTrainedTokenizerFast:
    """Byte-level BPE. All 256 bytes are in the vocabulary, so any text can be encoded."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([text], trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=EOS, clean_up_tokenization_spaces=False
    )


@dataclass(frozen=True)
class Phase:
    """A stretch of training at one window length, in tokens. The learning rate runs on across
    phases.
    """

    num_steps: int
    batch_size: int
    length: int


@dataclass(frozen=True)
class Recipe:
    """Everything that tells one built-in model from the other."""

    make_tokenizer: Callable[[str], PreTrainedTokenizerFast]
    make_config: Callable[..., PretrainedConfig]
    phases: tuple[Phase, ...]
    muon_lr: float
    adamw_lr: float
    weight_decay: float
    dropout: float = 0.0
    bfloat16: bool = False  # autocast of the matrix products; worth it for the wider model alone
    split: float = 0.0  # share of the tokens taken apart in an epoch; falls to 0 over the run

    @property
    def num_steps(self) -> int:
        return sum(phase.num_steps for phase in self.phases)


RECIPES = {
    # Too small to overfit: it wants many small steps and no regularisation.
    "shakespeare-char": Recipe(
        make_tokenizer=char_tokenizer,
        make_config=partial(
            GPT2Config,
            n_layer=4,
            n_head=4,
            n_embd=64,
            n_positions=256,
            embd_pdrop=0.0,
            resid_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=None,
            eos_token_id=None,
        ),
        phases=(Phase(2600, 16, 256),),
        muon_lr=1e-2,
        adamw_lr=5e-3,
        weight_decay=0.01,
    ),
    # Five parameters for every character of the text: it wants all the regularisation it can get.
    "shakespeare-bpe": Recipe(
        make_tokenizer=bpe_tokenizer,
        make_config=partial(
            LlamaConfig,
            num_hidden_layers=4,
            hidden_size=256,
            intermediate_size=1216,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=1024,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=0,
        ),
        phases=(Phase(600, 16, 256), Phase(120, 4, 1024)),
        muon_lr=5e-3,
        adamw_lr=3e-3,
        weight_decay=0.2,
        dropout=0.1,
        split=0.05,
        bfloat16=True,
    ),
}


def merge_parents(tokenizer: PreTrainedTokenizerFast) -> Tensor:
    """`[vocab, 2]`: the two tokens each token was merged from, -1 where it is no merge."""
    vocab = tokenizer.get_vocab()
    parents = torch.full((len(vocab), 2), -1)
    model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    for left, right in model.get("merges", []):
        parents[vocab[left + right]] = torch.tensor((vocab[left], vocab[right]))
    return parents


def split_tokens(ids: Tensor, parents: Tensor, share: float) -> Tensor:
    """The same text in other tokens: some are taken apart into their parents, twice over.

    Does what BPE-dropout does, but draws from torch's seeded generator and costs one gather.
    """
    for _ in range(2):
        taken_apart = (parents[ids, 0] >= 0) & (torch.rand(len(ids)) < share)
        pairs = torch.where(taken_apart[:, None], parents[ids], torch.stack((ids, ids), 1))
        kept = torch.stack((torch.ones_like(taken_apart), taken_apart), 1)
        ids = pairs[kept]
    return ids


def batches(ids: Tensor, parents: Tensor, recipe: Recipe) -> Iterator[Tensor]:
    """The run's batches `[batch_size, length + 1]`; each epoch is split, cut and shuffled anew."""
    step = 0
    for phase in recipe.phases:
        end = step + phase.num_steps
        while step < end:
            epoch = split_tokens(ids, parents, recipe.split * (1 - step / recipe.num_steps))
            windows = epoch[int(torch.randint(phase.length, ())) :].unfold(
                0, phase.length + 1, phase.length
            )
            # what is left over waits for another epoch
            num_batches = len(windows) // phase.batch_size
            if num_batches == 0:
                raise ValueError(
                    f"the text is too short for {phase.batch_size} windows of {phase.length} tokens"
                )
            order = torch.randperm(len(windows))
            for chosen in order.split(phase.batch_size)[: min(num_batches, end - step)]:
                yield windows[chosen]
                step += 1


def make_optimizers(model: PreTrainedModel, recipe: Recipe) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside the layers; AdamW for embeddings, norms and biases."""
    matrices, others = [], []
    for name, parameter in model.named_parameters():
        in_a_layer = re.search(r"\.\d+\.", name)
        (matrices if in_a_layer and parameter.ndim == 2 else others).append(parameter)
    return [
        torch.optim.Muon(
            matrices,
            lr=recipe.muon_lr,
            weight_decay=recipe.weight_decay,
            adjust_lr_fn="match_rms_adamw",
        ),
        torch.optim.AdamW(others, lr=recipe.adamw_lr, weight_decay=0.0, betas=(0.9, 0.95)),
    ]


def add_dropout(model: PreTrainedModel, p: float) -> None:
    """Dropout where Llama has none: on the embedding and on what each branch adds to the residual
    stream.
    """
    for name, module in model.named_modules():
        if p and name.endswith(("embed_tokens", "o_proj", "down_proj")):
            module.register_forward_hook(
                lambda module, _, output: F.dropout(output, p, module.training)
            )


@torch.inference_mode()
def total_nats(model: PreTrainedModel, context: Tensor, ids: Tensor) -> float:
    """The loss of `ids` summed over tokens, each seen after at least half a window of text.

    The windows move by half of the model's context; the first half window is the end of `context`.
    """
    window = model.config.max_position_embeddings
    half = window // 2
    tokens = torch.cat((context[-half:], ids))
    nats = 0.0
    for start in range(0, len(ids), half):
        piece = tokens[start : start + window]
        logits = model(piece[None]).logits[0, half - 1 : -1]
        nats += F.cross_entropy(logits, piece[half:], reduction="sum").item()
    return nats


def train(recipe: Recipe, text: str, folder: Path, device: str) -> None:
    """Train one model on the first nine tenths of `text`, save it to `folder`, measure what was
    saved.
    """
    torch.manual_seed(0)
    cut = len(text) * 9 // 10
    tokenizer = recipe.make_tokenizer(text[:cut])
    train_ids, valid_ids = (
        torch.tensor(tokenizer.encode(part)) for part in (text[:cut], text[cut:])
    )
    model = AutoModelForCausalLM.from_config(recipe.make_config(vocab_size=len(tokenizer))).to(
        device
    )
    add_dropout(model, recipe.dropout)
    optimizers = make_optimizers(model, recipe)

    def learning_rate(step: int) -> float:
        """Rises over the first fiftieth of the run, then falls in a line to nothing."""
        return min(50 * (step + 1) / recipe.num_steps, 1 - step / recipe.num_steps)

    schedules = [LambdaLR(optimizer, learning_rate) for optimizer in optimizers]
    model.train()
    progress = tqdm(
        batches(train_ids, merge_parents(tokenizer), recipe),
        folder.name,
        recipe.num_steps,
        unit="step",
    )
    for batch in progress:
        inputs, targets = batch[:, :-1].to(device), batch[:, 1:].to(device)
        with torch.autocast(device, torch.bfloat16, enabled=recipe.bfloat16):
            logits = model(inputs, use_cache=False).logits
        loss = F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
        loss.backward()
        for optimizer, schedule in zip(optimizers, schedules, strict=True):
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
        progress.set_postfix(loss=f"{loss.item():.3f}", refresh=False)

    model.to(torch.float16).save_pretrained(folder)
    tokenizer.model_max_length = model.config.max_position_embeddings
    tokenizer.save_pretrained(folder)
    saved = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    loss = total_nats(saved, train_ids, valid_ids) / (len(text) - cut)
    print(
        f"{folder.name}: {saved.num_parameters():,} parameters, {loss:.4f} nats a character on the"
        " last tenth"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("text", type=Path, help="a UTF-8 text file, such as tinyshakespeare.txt")
    parser.add_argument("--model", choices=("all", *RECIPES), default="all")
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent, help="folder of the model folders"
    )
    args = parser.parse_args()
    text = args.text.read_text(encoding="utf-8")
    for name in RECIPES if args.model == "all" else (args.model,):
        train(RECIPES[name], text, args.out / name, "cuda" if torch.cuda.is_available() else "cpu")


if __name__ == "__main__":
    main()
