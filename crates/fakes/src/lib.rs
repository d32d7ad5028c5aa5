//! A fake endpoint: a loopback server that speaks the OpenAI chat-completions protocol without any model behind it,
//! well behaved or not.
//!
//! It is for tests and benchmarks and never for answers. `request → Behaviour → FakeReply → Answer (status, headers,
//! bytes and pauses) → socket`: what to send is decided by pure code in `wire`, sending it is all `endpoint` does.
//! A word counts as a token, so every token count is known beforehand.
//!
//! ```
//! use lemon_fakes::{Behaviour, FakeEndpoint, FakeReply};
//!
//! let busy = FakeReply::Status { code: 429, retry_after: Some("1".into()), body: String::new() };
//! let endpoint = FakeEndpoint::start(Behaviour::script([busy, FakeReply::Text("42".into())]))?;
//! assert!(endpoint.base_url().starts_with("http://127.0.0.1:"));
//! assert_eq!(endpoint.calls(), 0);
//! # std::io::Result::Ok(())
//! ```
//!
//! [`FakeHub`] is the same for downloads: it speaks as much of the protocol of the Hugging Face hub as a client needs to
//! fetch a checkpoint. [`FakeMcp`] is an MCP server with one honest tool and many that reply badly. [`FakeTinker`] is a server
//! of the Tinker API with a model of one number, [`RecordedTinker`] one that repeats what a real one said. [`FakeVllm`] samples texts
//! that it was given, as if it held them to a grammar. [`NatsServer`], [`SkyrlServer`] and [`VllmServer`] are no fakes but the real servers, where they are installed.

mod behaviour;
mod clock;
mod endpoint;
mod hub;
mod mcp;
mod nats;
mod request;
mod seen;
mod server;
mod skyrl;
mod tinker;
mod vllm;
mod vllm_server;
mod wire;

pub use behaviour::{Behaviour, FakeReplies, FakeReply, Faults, ReplyFn};
pub use endpoint::{FakeEndpoint, run_forever};
pub use hub::{FakeHub, HubFile, HubRequest, Lie, Sent, Trouble};
pub use mcp::{FakeMcp, HOSTILE_TOOLS};
pub use nats::{DroppingProxy, NatsServer};
pub use request::{ChatRequest, SeenMessage};
pub use seen::SeenRequest;
pub use skyrl::{SKYRL_VARIABLE, SkyrlServer};
pub use tinker::{FakeTinker, RecordedExchange, RecordedTinker, TinkerFault, TinkerWorld};
pub use vllm::{FakeVllm, VllmWorld};
pub use vllm_server::{VLLM_VARIABLE, VllmServer};

/// How often a test of faults repeats its draws: so often, times the number in `LEMON_FAULT_ROUNDS`, if it is set.
/// `LEMON_FAULT_ROUNDS=20 cargo test --workspace --test it` is a campaign.
///
/// # Panics
/// The variable holds something else than a positive number.
pub fn fault_rounds(default: u64) -> u64 {
    match std::env::var("LEMON_FAULT_ROUNDS") {
        Err(_) => default,
        Ok(text) => match text.parse::<u64>() {
            Ok(times) if times > 0 => default.saturating_mul(times),
            _ => panic!("LEMON_FAULT_ROUNDS must be a positive number, got {text:?}"),
        },
    }
}
