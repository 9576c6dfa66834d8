"""onnxruntime on a BERT folder, laid out as exporters do and optimized by onnxruntime when it loads."""

import argparse
import json
import os
import tempfile

import peer

args = argparse.ArgumentParser(description=__doc__)
args.add_argument("--model", required=True, help="folder with config.json and model.safetensors")
args.add_argument("--mode", choices=["f32", "int8"], default="f32")
args.add_argument("--threads", type=int, default=0)
args = args.parse_args()

np, onnx, ort = peer.need("numpy", "onnx", "onnxruntime")
helper, types = onnx.helper, onnx.TensorProto


def tensors(path):
    """Reads an f32 safetensors file."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        header.pop("__metadata__", None)
        data = file.read()
    out = {}
    for name, info in header.items():
        assert info["dtype"] == "F32", f"{name} is {info['dtype']}"
        start, end = info["data_offsets"]
        out[name] = np.frombuffer(data[start:end], dtype=np.float32).reshape(info["shape"])
    return out


class Graph:
    """Builds an ONNX graph the way an exporter lays BERT out."""

    def __init__(self, weights, config):
        self.weights, self.config = weights, config
        self.nodes, self.constants, self.count = [], [], 0

    def constant(self, value, dtype=np.float32):
        self.count += 1
        name = f"c{self.count}"
        self.constants.append(onnx.numpy_helper.from_array(np.asarray(value, dtype=dtype), name))
        return name

    def node(self, kind, *inputs, **attributes):
        self.count += 1
        name = f"n{self.count}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def linear(self, x, name):
        weight = self.constant(np.ascontiguousarray(self.weights[name + ".weight"].T))
        bias = self.constant(self.weights[name + ".bias"])
        return self.node("Add", self.node("MatMul", x, weight), bias)

    def norm(self, x, name):
        scale, bias = (self.constant(self.weights[f"{name}.{p}"]) for p in ("weight", "bias"))
        epsilon = self.config["layer_norm_eps"]
        return self.node("LayerNormalization", x, scale, bias, axis=-1, epsilon=epsilon)

    def heads(self, x, order):
        heads = self.config["num_attention_heads"]
        size = self.config["hidden_size"] // heads
        split = self.node("Reshape", x, self.constant([0, 0, heads, size], np.int64))
        return self.node("Transpose", split, perm=order)

    def layer(self, x, at):
        prefix = f"encoder.layer.{at}."
        q = self.heads(self.linear(x, prefix + "attention.self.query"), [0, 2, 1, 3])
        k = self.heads(self.linear(x, prefix + "attention.self.key"), [0, 2, 3, 1])
        v = self.heads(self.linear(x, prefix + "attention.self.value"), [0, 2, 1, 3])
        size = self.config["hidden_size"] // self.config["num_attention_heads"]
        scores = self.node("Div", self.node("MatMul", q, k), self.constant(np.sqrt(size)))
        mixed = self.node("MatMul", self.node("Softmax", scores, axis=-1), v)
        joined = self.node("Transpose", mixed, perm=[0, 2, 1, 3])
        joined = self.node("Reshape", joined, self.constant([0, 0, self.config["hidden_size"]], np.int64))
        attended = self.linear(joined, prefix + "attention.output.dense")
        x = self.norm(self.node("Add", attended, x), prefix + "attention.output.LayerNorm")
        wide = self.node("Gelu", self.linear(x, prefix + "intermediate.dense"))
        narrow = self.linear(wide, prefix + "output.dense")
        return self.norm(self.node("Add", narrow, x), prefix + "output.LayerNorm")

    def model(self):
        table = lambda name: self.constant(self.weights[f"embeddings.{name}_embeddings.weight"])
        words = self.node("Gather", table("word"), "ids")
        length = self.node("Shape", "ids", start=1, end=2)
        zero, one = self.constant(0, np.int64), self.constant(1, np.int64)
        end = self.node("Squeeze", length, self.constant([0], np.int64))
        positions = self.node("Gather", table("position"), self.node("Range", zero, end, one))
        kinds = self.constant(self.weights["embeddings.token_type_embeddings.weight"][0])
        x = self.node("Add", self.node("Add", words, kinds), positions)
        x = self.norm(x, "embeddings.LayerNorm")
        for at in range(self.config["num_hidden_layers"]):
            x = self.layer(x, at)
        mean = self.node("ReduceMean", x, self.constant([1], np.int64), keepdims=0)
        length = self.node("ReduceL2", mean, self.constant([1], np.int64), keepdims=1)
        self.nodes.append(helper.make_node("Div", [mean, length], ["vectors"], name="unit"))
        graph = helper.make_graph(
            self.nodes,
            "bert",
            [helper.make_tensor_value_info("ids", types.INT64, ["texts", "tokens"])],
            [helper.make_tensor_value_info("vectors", types.FLOAT, ["texts", self.config["hidden_size"]])],
            self.constants,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


with open(os.path.join(args.model, "config.json"), encoding="utf-8") as file:
    config = json.load(file)
weights = tensors(os.path.join(args.model, "model.safetensors"))
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "model.onnx")
    onnx.save(Graph(weights, config).model(), path)
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
