// Elementwise activations; ACT is none, gelu, gelu_tanh, relu, silu, tanh or sigmoid.

// tanh overflows to NaN on some drivers for large arguments.
fn safe_tanh(x: vec4<f32>) -> vec4<f32> {
    return tanh(clamp(x, vec4(-15.0), vec4(15.0)));
}

fn sigmoid(x: vec4<f32>) -> vec4<f32> {
    return 1.0 / (1.0 + exp(-clamp(x, vec4(-80.0), vec4(80.0))));
}

#if ACT == gelu
// erf by W. J. Cody, Rational Chebyshev approximations for the error function (1969), in the two-range form:
// a polynomial quotient near 0, 1 - exp(-x^2) times a polynomial elsewhere; maximal error 1.2e-7 relative
// (Numerical Recipes erfc with Chebyshev fitting).
fn erf(x: vec4<f32>) -> vec4<f32> {
    let a = abs(x);
    let t = 1.0 / (1.0 + 0.5 * a);
    let p = -1.26551223 + t * (1.00002368 + t * (0.37409196 + t * (0.09678418 + t * (-0.18628806
        + t * (0.27886807 + t * (-1.13520398 + t * (1.48851587 + t * (-0.82215223 + t * 0.17087277))))))));
    let y = 1.0 - t * exp(max(p - a * a, vec4(-80.0)));
    return select(-y, y, x >= vec4(0.0));
}
#endif

fn activate(x: vec4<f32>) -> vec4<f32> {
#if ACT == gelu
    return 0.5 * x * (1.0 + erf(x * 0.70710678));
#endif
#if ACT == gelu_tanh
    return 0.5 * x * (1.0 + safe_tanh(0.7978845608 * (x + 0.044715 * x * x * x)));
#endif
#if ACT == relu
    return max(x, vec4(0.0));
#endif
#if ACT == silu
    return x * sigmoid(x);
#endif
#if ACT == tanh
    return safe_tanh(x);
#endif
#if ACT == sigmoid
    return sigmoid(x);
#endif
#if ACT == none
    return x;
#endif
}
