//! The kernel lab end to end, on the reference backend.
#![cfg(feature = "cli")]

use std::process::{Command, Output};

use serde_json::Value;

fn lab(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kernel-lab")).args(args).output().expect("the program starts")
}

fn json(args: &[&str]) -> Value {
    let output = lab(&[args, &["--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

const QUICK: [&str; 10] = [
    "--variants",
    "reference,reference-f16,reference-int8",
    "--rounds",
    "3",
    "--seconds",
    "0.05",
    "--bandwidth",
    "10",
    "--flops",
    "0.1",
];

#[test]
fn every_op_is_checked_and_timed() {
    let ops: [&[&str]; 8] = [
        &["embed", "--rows", "7", "--cols", "16", "--vocab", "50", "--positions", "8", "--norm", "layer"],
        &["norm", "--rows", "7", "--cols", "16", "--kind", "rms"],
        &["linear", "--rows", "7", "--in", "16", "--out", "12", "--act", "gelu", "--residual", "--bias"],
        &["gated-linear", "--rows", "7", "--in", "16", "--out", "12", "--act", "silu", "--bias"],
        &["rope", "--rows", "7", "--heads", "2", "--all-heads", "3", "--head-dim", "8", "--positions", "9"],
        &[
            "attention",
            "--lens",
            "2x5,70",
            "--heads",
            "4",
            "--kv-heads",
            "2",
            "--head-dim",
            "8",
            "--window",
            "3",
            "--bias-radius",
            "4",
        ],
        &["pool", "--lens", "2x5,3", "--cols", "16", "--modes", "mean,cls"],
        &["normalize", "--rows", "7", "--cols", "16", "--keep", "8"],
    ];
    for op in ops {
        let report = json(&[op, &QUICK].concat());
        let lines = report["lines"].as_array().expect("lines");
        assert_eq!(lines.len(), 3, "{report}");
        assert_eq!(report["checked_rows"][0], report["checked_rows"][1], "{report}");
        for line in lines {
            assert_eq!(line["check"]["right"], true, "{report}");
            assert!(line["costs"]["bytes"].as_u64().is_some_and(|b| b > 0), "{report}");
            assert!(line["times"]["each"]["count"].as_u64().is_some_and(|n| n >= 3), "{report}");
            assert_eq!(line["best"]["bytes_per_second"], 10e9, "{report}");
        }
    }
}

#[test]
fn the_table_names_floor_and_worst_value() {
    let output = lab(&[&["linear", "--rows", "4", "--in", "8", "--out", "8"], &QUICK[..]].concat());
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    for word in ["x floor", "worst value: row", "reference-f16", "ok 0.00", "GFLOP/s", "checked 4 of 4 rows"]
    {
        assert!(text.contains(word), "`{word}` is not in:\n{text}");
    }
}

#[test]
fn the_suite_passes_on_the_reference() {
    let args = ["suite", "--size", "small", "--filter", "norm", "--variants", "reference-f16"];
    let outcomes = json(&args);
    let ops = outcomes[0]["ops"].as_object().expect("ops");
    assert!(ops.contains_key("norm") && ops.contains_key("normalize"), "{outcomes}");
    for group in ops.values() {
        assert_eq!(group["cases"], group["passed"], "{outcomes}");
    }
    let none = lab(&["suite", "--filter", "no such case", "--variants", "reference"]);
    assert_eq!(none.status.code(), Some(1));
}

#[test]
fn impossible_requests_are_errors() {
    let cases: [(&[&str], &str); 5] = [
        (&["linear", "--variants", "gpu-f17"], "gpu-f17"),
        (&["linear", "--rows", "0"], "a number from 1"),
        (&["linear", "--rows", "2000000000", "--in", "4096", "--device", "reference"], "2000000000"),
        (&["linear", "--rows", "4", "--in", "6", "--device", "reference"], "a multiple of 4 columns"),
        (&["attention", "--lens", "3y4"], "3y4"),
    ];
    for (args, needle) in cases {
        let output = lab(args);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {text}");
        assert!(text.contains(needle) && !text.contains("panicked"), "{args:?}: {text}");
    }
}
