//! Running the engine's futures where there is no executor.

use core::{
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
};

/// Polls until the future is done. For futures that get ready without an event loop: loading from files, and
/// runs that were waited for. In a browser, where GPU results need the event loop, await instead.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        core::hint::spin_loop();
    }
}
