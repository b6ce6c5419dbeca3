"""Writes tests/data/base/*.txt: values of the PyTorch reference that runtime/base is tested against.

usage: make_base_vectors.py FOLDER_OF_v41_reference.py OUTPUT_FOLDER   (needs torch and numpy)
All numbers are hexadecimal bit patterns.
"""

import sys
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, sys.argv[1])
import v41_reference as ref  # noqa: E402

out = Path(sys.argv[2])
out.mkdir(parents=True, exist_ok=True)
torch.set_num_threads(1)


def bits(t: torch.Tensor) -> np.ndarray:
    return t.detach().contiguous().float().view(torch.int32).numpy().astype(np.uint32)


def hexes(t: torch.Tensor) -> str:
    return " ".join(f"{b:08x}" for b in bits(t))


class Cfg:
    qk_rope_head_dim = 64
    rope_theta, compress_rope_theta = 10000.0, 160000.0

    def __init__(self, scaling):
        self.rope_scaling = scaling


# --- rope: "freqs <name> <32 values>" and "turn <position> <frequency> <angle> <cos> <sin>"
tiny = dict(rope_type="yarn", factor=4, beta_fast=32, beta_slow=1, original_max_position_embeddings=4096)
flash = dict(rope_type="yarn", factor=16, beta_fast=32, beta_slow=1, original_max_position_embeddings=65536)
with open(out / "rope.txt", "w") as f:
    tables = dict(
        plain=ref.rope_freqs(Cfg(tiny), False),
        compressed=ref.rope_freqs(Cfg(None), True),
        yarn_tiny=ref.rope_freqs(Cfg(tiny), True),
        yarn_flash=ref.rope_freqs(Cfg(flash), True),
    )
    for name, t in tables.items():
        f.write(f"freqs {name} {hexes(t)}\n")
    g = torch.Generator().manual_seed(1)
    fixed = torch.tensor([0, 1, 2, 127, 128, 16383, 65535, 1048575])
    for name in ("plain", "yarn_tiny", "yarn_flash"):
        pos = torch.cat((fixed, torch.randint(0, 1 << 20, (92,), generator=g)))
        fr = tables[name][torch.randint(0, 32, (100,), generator=g)]
        fr[:8] = tables[name][:8]
        ang = pos.float() * fr
        for p, *rest in zip(pos.tolist(), *map(bits, (fr, ang, ang.cos(), ang.sin()))):
            f.write(f"turn {p:x} " + " ".join(f"{b:08x}" for b in rest) + "\n")

# --- number formats
g = torch.Generator().manual_seed(2)


def spread(n: int, low: int, high: int) -> torch.Tensor:
    return torch.randn(n, generator=g) * 2.0 ** torch.randint(low, high, (n,), generator=g).float()


def edges(values: torch.Tensor, extra: list[float]) -> torch.Tensor:
    """Values of a format, the ties between neighbours, the floats beside each tie, `extra`; both signs."""
    mid = (values[1:] + values[:-1]) / 2
    up, down = torch.nextafter(mid, torch.tensor(1e9)), torch.nextafter(mid, torch.tensor(0.0))
    e = torch.cat((values, mid, down, up, torch.tensor(extra)))
    return torch.cat((e, -e))


with open(out / "number_formats.txt", "w") as f:
    codes = torch.arange(256, dtype=torch.uint8)
    e4m3 = codes.view(torch.float8_e4m3fn).float()
    f.write(f"e4m3_values {hexes(e4m3)}\n")
    f.write(f"e2m1_values {hexes(ref.e2m1_value(codes[:16]))}\n")
    f.write(f"ue8m0_values {hexes(torch.ldexp(torch.ones(255), codes[:255].int() - 127))}\n")
    inf = float("inf")
    x = torch.cat((edges(e4m3[:127], [449.0, 464.0, 465.0, 1e30, inf, 1e-45, 2.0**-10, 2.0**-11]), spread(1000, -16, 10)))
    for a, q in zip(bits(x), x.clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8).tolist()):
        f.write(f"e4m3 {a:08x} {q:02x}\n")
    x = torch.cat((edges(ref.E2M1, [7.0, 1e30, inf, 1e-45]), spread(400, -5, 4)))
    for a, q in zip(bits(x), ref.e2m1_code(x).tolist()):
        f.write(f"e2m1 {a:08x} {q:02x}\n")
    special = [0, -(2**31), 0x7F800000, -0x800000, 0x7F7FFFFF, 0x7F7F8000, 0x7F7F7FFF, 1, 0x8000, 0x8001, 0x18000]
    special += [0x3F808000, 0x3F818000, 0x3F807FFF, 0x3F808001, 0x007FFFFF]
    raw = torch.randint(-(2**31), 2**31 - 1, (1000,), generator=g)
    x = torch.cat((raw, torch.tensor(special))).to(torch.int32).view(torch.float32)
    x = x[~x.isnan()]
    for a, q in zip(bits(x), x.bfloat16().view(torch.int16).numpy().astype(np.uint16)):
        f.write(f"bf16 {a:08x} {q:04x}\n")
    special = [0.0, 1e-45, 1e-4, 9.99e-5, 448.0, 448.00003, 896.0, 6.0, 6.0000005, 6 * 2.0**-126, 7 * 2.0**-126, 6 * 2.0**-9]
    special += [2688.0, 2689.0, 1e5, 3e38]
    amax = torch.cat((spread(600, -19, 19).abs(), torch.tensor(special)))
    kv = (amax.clamp_min(6.0 * 2.0**-9) / 6.0).clamp_max(448.0).to(torch.float8_e4m3fn).float()
    for r in zip(*map(bits, (amax, ref.pow2_ceil(amax), ref.fp8_scale(amax), ref.fp4_scale(amax), kv))):
        f.write("scale " + " ".join(f"{b:08x}" for b in r) + "\n")
    # 32 values, then fake_fp8, fake_fp4 and fake_fp4_kv of them
    x = torch.randn(40, 32, generator=g) * 2.0 ** torch.randint(-19, 19, (40, 1), generator=g).float()
    x[0], x[1, 5:], x[2, ::2] = 0.0, 0.0, -0.0
    for rows in zip(x, ref.fake_fp8(x), ref.fake_fp4(x), ref.fake_fp4_kv(x)):
        f.write("block " + " ".join(map(hexes, rows)) + "\n")
