"""Writes vectors.safetensors beside itself: inputs and results of single operations, from the PyTorch reference model.

usage: make_vectors.py PATH/TO/v41_reference.py
"""
import importlib.util
import sys
from pathlib import Path

import torch

spec = importlib.util.spec_from_file_location("v41_reference", sys.argv[1])
ref = importlib.util.module_from_spec(spec)
sys.modules["v41_reference"] = ref
spec.loader.exec_module(ref)
torch.manual_seed(7)
torch.set_num_threads(1)
out = {}


def put(**tensors):
    for name, t in tensors.items():
        t = t.detach()
        if t.dtype in (torch.bool, torch.float64):
            t = t.float()
        if t.dtype == torch.int32:  # the writer knows int64 only
            t = t.long()
        out[name] = t.contiguous()


# number formats: magnitudes over many binades, exact ties of every format, signed zeros, an all-zero block
x = torch.randn(48, 64) * torch.logspace(-14, 5, 48, base=4.0).unsqueeze(-1)
x[0, :32] = 0.0
x[1, 0:32:2] = -0.0
ties = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0, -0.25, -0.75, -1.25, -1.75, -2.5, -3.5, -5.0, -6.0])
x[2] = ties.repeat(4)
x[3] = (ties * 2.0**-7).repeat(4)
x[4] = torch.linspace(-448, 448, 64)
x[5] = torch.arange(64) * 2.0**-10
put(fmt_x=x, fmt_fp8=ref.fake_fp8(x), fmt_fp4=ref.fake_fp4(x), fmt_fp4_kv=ref.fake_fp4_kv(x))

# weights
w = torch.randn(70, 80)
q, s = ref.quantise_fp8_block(w)
put(w_block=q.view(torch.uint8), w_block_scale=s.as_subclass(torch.Tensor), w_block_value=ref.dequantise("F8_E4M3", q, s.as_subclass(torch.Tensor)))
w = torch.randn(13, 96)
q, s = ref.quantise_fp8_rows(w)
put(w_rows=q.view(torch.uint8), w_rows_scale=s.as_subclass(torch.Tensor), w_rows_value=ref.dequantise("F8_E4M3", q, s.as_subclass(torch.Tensor)))
q, s = ref.quantise_mxfp4(w)
put(w_mx=q.view(torch.uint8), w_mx_scale=s.as_subclass(torch.Tensor), w_mx_value=ref.dequantise("I8", q, s.as_subclass(torch.Tensor)))

# norm
x, w = torch.randn(5, 384) * 3, torch.randn(384)
put(rms_x=x, rms_w=w, rms_y=ref.rms(x, w, 1e-20))

# mHC
m, h = 4, 96
S, y = torch.randn(5, m, h), torch.randn(5, h)
fn, scale, base = torch.randn(m * (m + 2), m * h) * 0.1, torch.tensor([0.7, 1.1, 1.6]), torch.randn(m * (m + 2))
pre, post, comb = ref.hc_mixes(S, fn, scale, base, m, 20, 1e-6, 1e-20)
put(hc_S=S, hc_y=y, hc_fn=fn, hc_scale=scale, hc_base=base, hc_pre=pre, hc_post=post, hc_comb=comb)
put(hc_collapsed=ref.hc_collapse(S, pre), hc_expanded=ref.hc_expand(y, S, post, comb), hc_mean=S.mean(-2))

# RoPE, with the table that the result was made of
cfg = ref.V41Config()
freqs = ref.rope_freqs(cfg, True)
pos = torch.tensor([0, 1, 7, 300, 511])
ang = torch.arange(512).unsqueeze(-1).float() * freqs
x = torch.randn(5, 3, 128)
put(rope_x=x, rope_pos=pos.int(), rope_table=torch.cat((ang.cos(), ang.sin()), -1)[pos])
put(rope_y=ref.rotate(x, pos, freqs), rope_back=ref.rotate(x, pos, freqs, inverse=True))

# Engram
eng_hash = ref.EngramHash(cfg)
table = torch.randint(0, 5000, (cfg.vocab_size,))
eng_hash.token_map = table
ids = torch.randint(0, cfg.vocab_size, (1, 30))
rows = eng_hash(table[ids], 0)  # [1, T, layers, columns]
put(eng_map=table.int(), eng_ids=ids[0].int(), eng_rows=rows[0, :, 1], eng_mult=eng_hash.mult[1])
put(eng_primes=eng_hash.primes[1], eng_offsets=eng_hash.offsets[1])
eng = ref.Engram.__new__(ref.Engram)
torch.nn.Module.__init__(eng)
eng.m, eng.h, eng.eps = m, h, 1e-20
kv = torch.randn(5, (m + 1) * h) * 2
kv.view(5, m + 1, h)[1, 2] = 0  # dot = 0
qk = torch.randn(2, m, h)
eng.q_weight, eng.k_weight = torch.nn.Parameter(qk[0]), torch.nn.Parameter(qk[1])
k, v = kv.view(1, 5, m + 1, h)[..., :m, :], kv.view(1, 5, m + 1, h)[..., m, :]
eng.embed, eng.wkv, eng.slot = torch.nn.Module(), lambda e: kv.unsqueeze(0), 0
eng.embed.weight = torch.zeros(1, 1)
put(gate_S=S, gate_kv=kv, gate_qk=qk[0] * qk[1], gate_y=eng(S.unsqueeze(0), torch.zeros(1, 5, 1, 1, dtype=torch.long))[0])

# compressor of ratio 2
k, g = torch.randn(12, 48), torch.randn(12, 48) * 3
soft = g.unflatten(0, (6, 2)).softmax(1)
put(comp_k=k, comp_g=g, comp_y=(k.unflatten(0, (6, 2)) * soft).sum(1))

# attention: 20 rows, window 7, 3 compressed keys of 9 chosen per row
t, nh, d = 20, 4, 64
q, kv, ckv, sink = torch.randn(1, t, nh, d), torch.randn(1, t, d), torch.randn(1, 9, d), torch.randn(nh)
p = torch.arange(t)
win = (p.unsqueeze(0) <= p.unsqueeze(1)) & (p.unsqueeze(0) > p.unsqueeze(1) - 7)
chosen = torch.stack([torch.randperm(9)[:3].sort().values for _ in range(t)])
sel = torch.zeros(t, 9, dtype=torch.bool).scatter_(1, chosen, True)
put(att_q=q[0], att_kv=kv[0], att_ckv=ckv[0], att_sink=sink, att_chosen=chosen.int())
put(att_window=ref.core_attention(q, kv, win.unsqueeze(0), sink, d**-0.5)[0])
both = torch.cat((win, sel), -1).unsqueeze(0)
put(att_both=ref.core_attention(q, torch.cat((kv, ckv), 1), both, sink, d**-0.5)[0])

# index: scores, candidate blocks, selection (the constant factor of the reference is a power of two here: 1/16)
ih, idim, n = 4, 64, 200
iq, ik, a = ref.fake_fp4(torch.randn(6, ih, idim)), ref.fake_fp4(torch.randn(n, idim)), torch.randn(6, ih)
sc = torch.einsum("th,thk->tk", a, torch.einsum("thd,kd->thk", iq, ik).relu())
put(idx_q=iq, idx_k=ik, idx_a=a, idx_scores=sc)
grid = torch.round(sc * 0.25)  # many ties
grid[:, ::17] = -0.0
visible = torch.tensor([0, 1, 33, 64, 199, 200])
vis = torch.arange(n) < visible.unsqueeze(-1)
cand = ref.Indexer.candidates(grid.unsqueeze(0), visible, 6, 8)[0] & vis
free = ref.Indexer.choose(grid.unsqueeze(0), vis.unsqueeze(0), 24)[0] & vis
held = ref.Indexer.choose(grid.unsqueeze(0), cand.unsqueeze(0), 24)[0] & vis
put(sel_scores=grid, sel_visible=visible.int(), sel_candidates=cand, sel_free=free, sel_held=held)

# mixture of experts: routing with equal logits, experts with and without rounded activations
moe = ref.MoE(ref.V41Config(hidden_size=64, moe_intermediate_size=32), 16, 4, 1.0).eval()
with torch.no_grad():
    moe.gate.bias.copy_(torch.randn(16) * 0.05)
    moe.gate.weight[7] = moe.gate.weight[3]
    moe.gate.bias[7] = moe.gate.bias[3]
    moe.w13 *= 3  # some activations reach the limit
    moe.w13[0] *= 8
x = torch.randn(9, 64)
x[0] = moe.gate.weight[3] * 3  # experts 3 and 7 win with equal scores
idx, wt = moe.route(x)
put(moe_x=x, moe_logits=x @ moe.gate.weight.T, moe_bias=moe.gate.bias, moe_expert=idx.int(), moe_weight=wt)
put(moe_w13=moe.w13, moe_w2=moe.w2, moe_s1=moe.shared_experts.w1.weight, moe_s3=moe.shared_experts.w3.weight)
put(moe_s2=moe.shared_experts.w2.weight, moe_shared=moe.shared_experts(x, 10.0, ref.Quant()))
put(moe_y=moe(x, ref.Quant()), moe_y_act=moe(x, ref.Quant(act=True)))
g, u = torch.randn(3, 50) * 12, torch.randn(3, 50) * 12
put(glu_g=g, glu_u=u, glu_y=ref.swiglu(g, u, 10.0))

ref.write_safetensors(Path(__file__).with_name("vectors.safetensors"), out)
print(len(out), "tensors")
