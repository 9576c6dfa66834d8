"""onnxruntime on a BERT folder, laid out as exporters do and optimized by onnxruntime when it loads."""

import argparse
import os
import tempfile

import peer

args = argparse.ArgumentParser(description=__doc__)
args.add_argument("--model", required=True, help="folder with config.json and model.safetensors")
args.add_argument("--mode", choices=["f32", "int8"], default="f32")
args.add_argument("--threads", type=int, default=0)
args = args.parse_args()

np, onnx, ort = peer.need("numpy", "onnx", "onnxruntime")
import bert_onnx

with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "model.onnx")
    onnx.save(bert_onnx.load(args.model).vectors(), path)
    if args.mode == "int8":
        from onnxruntime.quantization import QuantType, quantize_dynamic

        small = os.path.join(folder, "int8.onnx")
        quantize_dynamic(path, small, weight_type=QuantType.QInt8)
        path = small
    options = ort.SessionOptions()
    options.intra_op_num_threads = args.threads
    options.log_severity_level = 3
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])

peer.serve(
    "onnxruntime",
    ort.__version__,
    args.mode,
    lambda ids: session.run(None, {"ids": np.asarray(ids, dtype=np.int64)})[0],
)
