//! The fakes over real sockets.
#![allow(clippy::unwrap_used, clippy::expect_used)] // Helpers of tests are tests.

mod client;
mod endpoint;
mod hub;
mod replies;
