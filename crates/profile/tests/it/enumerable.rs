//! A world so small that every effect can be computed: an agent is right or wrong, and its noise is one of a few numbers.

use crate::common::{env, own_cases};
use async_trait::async_trait;
use lemon_exec::worker::{AskError, Reply, Request, Speaker, Usage};
use lemon_exec::{Backend, Clock, Level, OfferedTool, RequestedCall, ToolRun, ToolRunner, Worker};
use lemon_rollout::{Case, RolloutEnv};
use std::sync::Arc;

/// Who can be asked: three agents, the judge and the second round's verifier.
pub const MEMBERS: [&str; 5] = ["a", "b", "c", "judge", "second_look"];
/// Values of noise, all equally likely.
const VALUES: u64 = 4;
/// How hard a task can be: either is equally likely.
pub const DIFFICULTIES: [i64; 2] = [4, 5];
/// Combinations of the noise of all agents.
pub const COMBINATIONS: u64 = VALUES.pow(MEMBERS.len() as u32);

/// The noise of one agent in a combination.
pub fn noise(combination: u64, member: usize) -> u64 {
    combination / VALUES.pow(member as u32) % VALUES
}

/// What an agent reads: whether it is right, and whether it is the bare answer.
pub type Reading = (bool, bool);

/// The rule of this world. Reasoning convinces more than a bare answer, a level helps, and so does a duty.
pub fn is_right(
    noise: u64,
    level: usize,
    dutiful: bool,
    readings: impl IntoIterator<Item = Reading>,
    hard: i64,
) -> bool {
    let swayed = |(right, bare)| (if right { 1 } else { -1 }) * (if bare { 1 } else { 2 });
    let read: i64 = readings.into_iter().map(swayed).sum();
    2 * noise as i64 + level as i64 + i64::from(dutiful) + read >= hard
}

/// A duty that helps.
pub const DUTY: &str = "Work with care.";
/// Who has this role works as well as who has that duty.
pub const ROLE: &str = "Careful reader";

/// A tool that helps as much as that duty; an agent that has it calls it before it replies.
const TOOL: &str = "consult";

/// A fake tool of that world.
struct FakeConsult;

#[async_trait]
impl ToolRunner for FakeConsult {
    async fn offered(&self, names: &[String]) -> Vec<Result<OfferedTool, String>> {
        let offer = |name: &String| OfferedTool {
            name: name.clone(),
            description: "Helps.".to_owned(),
            schema: serde_json::json!({"type": "object"}),
            price: 0.0,
            idempotent: true,
            read_only: true,
            approve: false,
        };
        names.iter().map(|name| Ok(offer(name))).collect()
    }

    async fn call(&self, _: &OfferedTool, _: &serde_json::Value) -> ToolRun {
        ToolRun { ok: true, text: "Help.".to_owned(), known: false }
    }
}

/// A fake worker of that world. A task says how hard it is and gives every agent a number; its noise is that number, shifted by
/// the seed. So over all tasks of a difficulty, whatever the seed, every combination of noise comes exactly once.
struct FakeEnumerable;

#[async_trait]
impl Worker for FakeEnumerable {
    async fn ask(&self, request: &Request) -> Result<Reply, AskError> {
        let agent_prompt = request.agent_prompt.as_ref().unwrap();
        let mut numbers = agent_prompt.question.split_whitespace().filter_map(|word| word.parse().ok());
        let (combination, hard): (i64, i64) = (numbers.next().unwrap(), numbers.next().unwrap());
        let member = MEMBERS.iter().position(|id| *id == request.agent).unwrap();
        let noise = (noise(combination as u64, member) + request.seed) % VALUES;
        let readings = agent_prompt.readings.iter().map(|text| (text.ends_with('1'), text.len() == 1));
        // A result may be withheld: it does not help then, and the tool is not called again.
        let mut results = request.messages.iter().filter(|message| message.role == Speaker::Tool).peekable();
        let has_called = results.peek().is_some();
        let was_helped = results.any(|message| message.content.contains("Help."));
        let dutiful = agent_prompt.duty == DUTY || agent_prompt.role == ROLE || was_helped;
        let right = is_right(noise, request.level, dutiful, readings, hard);
        let consults = request.tools.is_some() && !has_called;
        let text = if consults { String::new() } else { format!("I thought about it.\nAnswer: {}", u8::from(right)) };
        let call = RequestedCall { id: String::new(), tool: TOOL.to_owned(), arguments: "{}".to_owned() };
        let tokens_in = request.messages.iter().map(|message| message.content.len() as u64).sum();
        let usage = Usage { tokens_in, tokens_out: text.len() as u64, counted: true };
        Ok(Reply {
            text,
            usage,
            model: None,
            simulated_s: Some(1.0),
            confidence: None,
            truncated: false,
            tool_calls: consults.then_some(call).into_iter().collect(),
        })
    }

    fn calls_tools(&self, _: usize) -> bool {
        true
    }
}

pub fn enumerable() -> RolloutEnv {
    env(Backend {
        worker: Arc::new(FakeEnumerable),
        name: "enumerable".into(),
        levels: ["small", "medium", "large"].map(Level::new).to_vec(),
        clock: Clock::Simulated,
        code: None,
        tools: Some(Arc::new(FakeConsult)),
    })
}

/// Tasks of that world, by combination of noise and difficulty.
pub fn cases(which: impl IntoIterator<Item = (u64, i64)>) -> Vec<Case> {
    let question = |(combination, hard)| format!("Number {combination} of difficulty {hard} : 1 or 0?");
    own_cases(which.into_iter().map(|task| (question(task), "1".to_owned())))
}

/// Every task there is.
pub fn all_cases() -> Vec<Case> {
    cases(DIFFICULTIES.into_iter().flat_map(|hard| (0..COMBINATIONS).map(move |combination| (combination, hard))))
}
