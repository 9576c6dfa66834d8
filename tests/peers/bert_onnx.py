"""bert_onnx.py MODEL OUT: ONNX files of a BERT folder in f32, f16 and int8 (dynamic quantization), for peers."""

import argparse
import json
import os
import shutil

import numpy as np
import onnx

helper, types = onnx.helper, onnx.TensorProto


def tensors(path):
    """Reads the weights of an f32 safetensors file; integers, such as position ids, are no weights."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        header.pop("__metadata__", None)
        data = file.read()
    out = {}
    for name, info in header.items():
        if info["dtype"].startswith("I"):
            continue
        assert info["dtype"] == "F32", f"{name} is {info['dtype']}"
        start, end = info["data_offsets"]
        out[name] = np.frombuffer(data[start:end], dtype=np.float32).reshape(info["shape"])
    return out


class Graph:
    """Builds an ONNX graph the way an exporter lays BERT out; `dtype` is that of weights and activations."""

    def __init__(self, weights, config, dtype=np.float32):
        self.weights, self.config, self.dtype = weights, config, dtype
        self.nodes, self.constants, self.count = [], [], 0
        self.mask = None

    def constant(self, value, dtype=None):
        self.count += 1
        name = f"c{self.count}"
        value = np.asarray(value, dtype=dtype or self.dtype)
        self.constants.append(onnx.numpy_helper.from_array(value, name))
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
        if self.mask:
            scores = self.node("Add", scores, self.mask)
        mixed = self.node("MatMul", self.node("Softmax", scores, axis=-1), v)
        joined = self.node("Transpose", mixed, perm=[0, 2, 1, 3])
        joined = self.node("Reshape", joined, self.constant([0, 0, self.config["hidden_size"]], np.int64))
        attended = self.linear(joined, prefix + "attention.output.dense")
        x = self.norm(self.node("Add", attended, x), prefix + "attention.output.LayerNorm")
        wide = self.node("Gelu", self.linear(x, prefix + "intermediate.dense"))
        narrow = self.linear(wide, prefix + "output.dense")
        return self.norm(self.node("Add", narrow, x), prefix + "output.LayerNorm")

    def hidden(self, ids, kinds):
        """The last layer's states; `kinds` is a row of the table of token types for all, or one for each."""
        words = self.node("Gather", self.table("word"), ids)
        length = self.node("Shape", ids, start=1, end=2)
        zero, one = self.constant(0, np.int64), self.constant(1, np.int64)
        end = self.node("Squeeze", length, self.constant([0], np.int64))
        positions = self.node("Gather", self.table("position"), self.node("Range", zero, end, one))
        x = self.node("Add", self.node("Add", words, kinds), positions)
        x = self.norm(x, "embeddings.LayerNorm")
        for at in range(self.config["num_hidden_layers"]):
            x = self.layer(x, at)
        return x

    def table(self, name):
        return self.constant(self.weights[f"embeddings.{name}_embeddings.weight"])

    def finish(self, inputs, output, shape):
        inputs = [helper.make_tensor_value_info(name, types.INT64, ["texts", "tokens"]) for name in inputs]
        output = helper.make_tensor_value_info(output, types.FLOAT, shape)
        graph = helper.make_graph(self.nodes, "bert", inputs, [output], self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)

    def vectors(self):
        """A model from token ids alone to vectors of unit length, the states' means."""
        kinds = self.constant(self.weights["embeddings.token_type_embeddings.weight"][0])
        x = self.hidden("ids", kinds)
        mean = self.node("ReduceMean", x, self.constant([1], np.int64), keepdims=0)
        length = self.node("ReduceL2", mean, self.constant([1], np.int64), keepdims=1)
        self.nodes.append(helper.make_node("Div", [mean, length], ["vectors"], name="unit"))
        return self.finish(["ids"], "vectors", ["texts", self.config["hidden_size"]])

    def states(self):
        """A model with an exporter's inputs and output: ids, mask and token types to the last layer's states."""
        inputs = ["input_ids", "attention_mask", "token_type_ids"]
        seen = self.node("Cast", "attention_mask", to=helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype)))
        hidden = self.node("Sub", self.constant(1), self.node("Unsqueeze", seen, self.constant([1, 2], np.int64)))
        self.mask = self.node("Mul", hidden, self.constant(np.finfo(self.dtype).min))
        x = self.hidden("input_ids", self.node("Gather", self.table("token_type"), "token_type_ids"))
        self.nodes.append(helper.make_node("Cast", [x], ["last_hidden_state"], name="states", to=types.FLOAT))
        return self.finish(inputs, "last_hidden_state", ["texts", "tokens", self.config["hidden_size"]])


def load(folder, dtype=np.float32):
    """The graph of a BERT folder."""
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    return Graph(tensors(os.path.join(folder, "model.safetensors")), config, dtype)


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("model", help="folder with config.json, model.safetensors and tokenizer.json")
    args.add_argument("out", help="folder that is made, as transformers.js takes it")
    args = args.parse_args()
    from onnxruntime.quantization import QuantType, quantize_dynamic

    files = os.path.join(args.out, "onnx")
    os.makedirs(files, exist_ok=True)
    for name in ["config.json", "tokenizer.json", "tokenizer_config.json"]:
        shutil.copy(os.path.join(args.model, name), args.out)
    path = os.path.join(files, "model.onnx")
    onnx.save(load(args.model).states(), path)
    onnx.save(load(args.model, np.float16).states(), os.path.join(files, "model_fp16.onnx"))
    quantize_dynamic(path, os.path.join(files, "model_quantized.onnx"), weight_type=QuantType.QInt8)


if __name__ == "__main__":
    main()
