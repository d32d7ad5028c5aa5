//! What a team can cost, before anything is spent.

use crate::ledger::{Budget, Ledger, LedgerVerdict, Price, Want};
use crate::settings::Settings;
use crate::state::{AgentOutcome, Delivery, Member, RunState};
use crate::tokens;
use crate::worker::{ChatMessage, Level};
use lemon_spec::{BaseRole, Plan, Share};
use lemon_trace::LimitKind;
use std::sync::Arc;

/// Tokens of a typical reply, where nothing is known of the model: short answers take fewer, essays more.
pub const LIKELY_REPLY: u64 = 256;
/// Tokens of a typical answer, for readers that see nothing else of a reply.
const LIKELY_ANSWER: u64 = 16;
/// Tokens that a reservation holds for a token of a reply that another agent reads: it bounds the text by its length.
const READ_AGAIN: u64 = 2;

/// What the calls of a round can cost.
#[derive(Debug, Clone, PartialEq)]
pub struct Forecast {
    /// The calls, in the order of the team; a judge comes last.
    pub calls: Vec<CallForecast>,
}

/// What one call can cost.
#[derive(Debug, Clone, PartialEq)]
pub struct CallForecast {
    pub agent: String,
    /// Its capacity.
    pub level: usize,
    /// It was added to decide between the others.
    pub is_judge: bool,
    /// Prompt tokens at most: what a reservation holds.
    pub tokens_in: u64,
    /// Completion tokens at most.
    pub tokens_out: u64,
    /// Prompt and completion tokens that are likely, with replies of [`LIKELY_REPLY`] tokens.
    pub likely: [u64; 2],
    /// The price of the capacity.
    pub price: Price,
}

/// What a budget leaves of a call at worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BudgetFit {
    /// All of it.
    Whole,
    /// A reply of so many tokens at most.
    Cut(u64),
    /// Nothing: it does not start.
    NotStarted(LimitKind),
}

impl CallForecast {
    /// All tokens at most.
    pub fn tokens(&self) -> u64 {
        self.tokens_in.saturating_add(self.tokens_out)
    }

    /// What it costs at most, in US dollars.
    pub fn usd(&self) -> f64 {
        self.price.usd(self.tokens_in, self.tokens_out)
    }
}

impl Forecast {
    /// What a first round of `plan` can cost on `question`.
    pub fn new(plan: &Plan, question: &str, levels: &[Level], judge_role: Arc<BaseRole>) -> Self {
        let mut state = RunState::new(question, Default::default(), judge_role).with_styles(levels);
        state.add_round(plan.clone());
        for index in 0..state.members().len() {
            state.end(index, AgentOutcome::done(""));
        }
        state.add_judge();
        let calls = (0..state.members().len()).filter_map(|index| call(&state, index, levels)).collect();
        Forecast { calls }
    }

    /// All tokens at most.
    pub fn tokens(&self) -> u64 {
        self.calls.iter().map(CallForecast::tokens).fold(0, u64::saturating_add)
    }

    /// All tokens that are likely.
    pub fn likely(&self) -> u64 {
        self.calls.iter().flat_map(|call| call.likely).fold(0, u64::saturating_add)
    }

    /// What it costs at most, in US dollars.
    pub fn usd(&self) -> f64 {
        self.calls.iter().map(CallForecast::usd).sum()
    }

    /// What is likely to be paid, in US dollars.
    pub fn likely_usd(&self) -> f64 {
        self.calls.iter().map(|call| call.price.usd(call.likely[0], call.likely[1])).sum()
    }

    /// What these settings leave of each call if every call before it takes all that it may.
    pub fn within(&self, settings: &Settings) -> Vec<BudgetFit> {
        // Time is not foreseen.
        let mut ledger = Ledger::new(Budget { seconds: None, ..settings.budget });
        let mut met = None;
        let mut fit = |call: &CallForecast| {
            if let Some(limit) = met {
                return BudgetFit::NotStarted(limit);
            }
            let want = Want {
                tokens_in: call.tokens_in,
                tokens_out: call.tokens_out,
                least_out: settings.least_reply_tokens.min(call.tokens_out),
                price: call.price,
                fixed_usd: 0.0,
                counted: false,
            };
            match ledger.reserve(&want) {
                LedgerVerdict::Granted(granted) => {
                    ledger.settle(granted, granted.tokens_in, granted.tokens_out);
                    match granted.tokens_out < call.tokens_out {
                        true => BudgetFit::Cut(granted.tokens_out),
                        false => BudgetFit::Whole,
                    }
                }
                // Nothing is in flight here, so there is nothing to wait for.
                LedgerVerdict::Wait => BudgetFit::Whole,
                LedgerVerdict::Exhausted { limit, .. } => {
                    met = Some(limit);
                    BudgetFit::NotStarted(limit)
                }
            }
        };
        self.calls.iter().map(&mut fit).collect()
    }
}

/// What a conversation without readings can cost: the call that writes a team, for instance.
pub fn forecast_call(agent: &str, messages: &[ChatMessage], level: usize, known: &Level) -> CallForecast {
    CallForecast {
        agent: agent.to_owned(),
        level,
        is_judge: false,
        tokens_in: tokens::at_most(messages),
        tokens_out: known.max_tokens,
        likely: [tokens::count_conversation(messages), known.max_tokens.min(likely_reply(known))],
        price: known.price,
    }
}

fn likely_reply(level: &Level) -> u64 {
    level.style.map_or(LIKELY_REPLY, |style| style.typical_tokens())
}

fn call(state: &RunState, index: usize, levels: &[Level]) -> Option<CallForecast> {
    let Member { agent, is_judge, .. } = state.members().get(index)?;
    let known = levels.get(agent.level)?;
    let senders = || agent.parents.iter().filter_map(|parent| Some((*parent, &state.members().get(*parent)?.agent)));
    let delivery = |(from, sender): (usize, &lemon_spec::PlannedAgent)| Delivery {
        from,
        share: sender.share,
        content: Some("".into()),
        delivered: true,
    };
    let deliveries: Vec<Delivery> = senders().map(delivery).collect();
    let mut call = forecast_call(&agent.id, &state.conversation(index, &deliveries), agent.level, known);
    call.is_judge = *is_judge;
    call.tokens_out = state.most_tokens(index, known);
    if state.style(index).is_none() {
        call.likely[1] = call.tokens_out.min(LIKELY_REPLY);
    }
    for (parent, sender) in senders() {
        let reply = levels.get(sender.level).map_or(0, |level| state.most_tokens(parent, level));
        // Where no answer stands in a reply, all of it is shared; a judge reads all of it anyway.
        call.tokens_in = call.tokens_in.saturating_add(reply.saturating_mul(READ_AGAIN));
        let answer_alone = sender.share == Share::Answer && !is_judge;
        call.likely[0] += reply.min(if answer_alone { LIKELY_ANSWER } else { LIKELY_REPLY });
    }
    Some(call)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lemon_spec::{Language, validate};

    const TEAM: &str = "agents:
  - {id: a, base: solver, capacity: small}
  - {id: b, base: solver, capacity: small}
  - {id: c, base: critic, capacity: large, after: [a, b]}
answer: {from: [a, b, c], by: judge}
";

    fn level(name: &str, max_tokens: u64) -> Level {
        Level { max_tokens, long_tokens: max_tokens, price: Price { input: 1.0, output: 2.0 }, ..Level::new(name) }
    }

    fn forecast() -> Forecast {
        let language = Language::default();
        let levels = [level("small", 100), level("medium", 200), level("large", 1000)];
        let judge = language.roles.get("judge").unwrap().clone();
        Forecast::new(&validate(TEAM, &language).unwrap(), "What is 2 + 2?", &levels, judge)
    }

    #[test]
    fn readers_pay_for_what_their_parents_may_say_and_a_judge_for_all() {
        let Forecast { calls } = forecast();
        let ids: Vec<_> = calls.iter().map(|call| (call.agent.as_str(), call.is_judge)).collect();
        assert_eq!(ids, [("a", false), ("b", false), ("c", false), ("judge", true)]);
        assert_eq!(calls[0].tokens_in, calls[1].tokens_in);
        assert!(calls[2].tokens_in >= 2 * 2 * 100, "two parents of 100 tokens each: {}", calls[2].tokens_in);
        assert!(calls[3].tokens_in >= 2 * (100 + 100 + 1000), "it reads all three: {}", calls[3].tokens_in);
        assert_eq!(calls.iter().map(|call| call.tokens_out).collect::<Vec<_>>(), [100, 100, 1000, 1000]);
        assert!(calls.iter().all(|call| call.likely[0] < call.tokens_in && call.likely[1] <= call.tokens_out));
    }

    #[test]
    fn a_budget_cuts_what_comes_last() {
        let forecast = forecast();
        let settings = |tokens| Settings {
            budget: Budget { tokens: Some(tokens), ..Budget::default() },
            least_reply_tokens: 10,
            ..Settings::default()
        };
        let all = forecast.tokens();
        assert_eq!(forecast.within(&settings(all)), [BudgetFit::Whole; 4]);
        assert_eq!(forecast.within(&settings(all - 1))[3], BudgetFit::Cut(999));
        let two = forecast.calls[0].tokens() + forecast.calls[1].tokens();
        let none = BudgetFit::NotStarted(LimitKind::Tokens);
        assert_eq!(forecast.within(&settings(two)), [BudgetFit::Whole, BudgetFit::Whole, none, none]);
        let one_call = Settings { budget: Budget { calls: Some(1), ..Budget::default() }, ..Settings::default() };
        let none = BudgetFit::NotStarted(LimitKind::Calls);
        assert_eq!(forecast.within(&one_call), [BudgetFit::Whole, none, none, none]);
    }
}
