"""torch with transformers on a BERT folder."""

import argparse

import peer

args = argparse.ArgumentParser(description=__doc__)
args.add_argument("--model", required=True, help="folder with config.json and model.safetensors")
args.add_argument("--mode", choices=["f32", "f16"], default="f32")
args.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
args.add_argument("--compile", action="store_true", help="torch.compile with CUDA graphs")
args.add_argument("--threads", type=int, default=0)
args = args.parse_args()

torch, transformers = peer.need("torch", "transformers")
if args.device == "cuda" and not torch.cuda.is_available():
    peer.say({"missing": "torch sees no CUDA device"})
    raise SystemExit
if args.threads:
    torch.set_num_threads(args.threads)
transformers.logging.set_verbosity_error()
dtype = torch.float16 if args.mode == "f16" else torch.float32
model = transformers.AutoModel.from_pretrained(args.model, dtype=dtype, attn_implementation="sdpa")
model = model.to(args.device).eval()


def forward(ids):
    hidden = model(input_ids=ids).last_hidden_state.float()
    return torch.nn.functional.normalize(hidden.mean(dim=1), dim=1)


if args.compile:
    forward = torch.compile(forward, mode="reduce-overhead")


@torch.inference_mode()
def encode(ids):
    return forward(torch.tensor(ids, device=args.device)).cpu().numpy()


mode = f"{args.mode} {args.device}{' compiled' if args.compile else ''}"
peer.serve("torch", torch.__version__, mode, encode)
