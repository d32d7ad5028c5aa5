//! Recorded models as workers: what real models replied to these very questions.
//!
//! An agent that reads no other agent gets one of the recorded samples of its capacity, chosen by the seed of its call; the
//! agents of a team get different samples as long as there are enough. An agent that reads others gets the recorded reply to
//! these very readings. So where a team has a reader on record, the agents it reads get the samples that it read. What is
//! not on record is a miss, or goes to a simulated world where one was given.

use crate::recordings::{RecordedCall, RecordedItem, Recordings};
use crate::sim::{World, finish};
use async_trait::async_trait;
use lemon_exec::answer::extract_or_all;
use lemon_exec::worker::{AgentPrompt, AskError, FailedCost, Reply, Request, TeamMember, Usage};
use lemon_exec::{Backend, Clock, Level, Worker};
use lemon_num::Random;
use lemon_trace::FailureKind;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Tokens a second: no times are on record.
const SPEED: f64 = 100.0;

/// Which of several recorded samples are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SamplePool {
    /// Every sample, whatever its temperature.
    #[default]
    All,
    /// Those that were sampled; the greedy one only where there are no others.
    Sampled,
    /// The greedy one for an agent that is the only one of its capacity in its round; for several agents the sampled ones,
    /// then the greedy one: as a user sets the temperature who wants one good reply, or several different ones.
    Auto,
}

/// Workers that say what recorded models said.
pub struct Recorded {
    recordings: Arc<Recordings>,
    pool: SamplePool,
    on_miss: Option<World>,
}

impl Recorded {
    /// Workers with these recordings. What is not on record fails, or is simulated.
    pub fn new(recordings: Arc<Recordings>, on_miss: Option<World>) -> Self {
        Recorded { recordings, pool: SamplePool::All, on_miss }
    }

    /// The same with other samples.
    #[must_use]
    pub fn with_pool(self, pool: SamplePool) -> Self {
        Recorded { pool, ..self }
    }

    /// The workers.
    pub fn backend(self) -> Backend {
        let name = if self.on_miss.is_some() { "replay (misses simulated)" } else { "replay (recorded models)" };
        let longest = self.recordings.longest();
        let level = |level: &String| {
            let plain = Level::new(level);
            let max_tokens = plain.max_tokens.max(longest);
            Level { identity: format!("recorded/{level}").into(), max_tokens, ..plain }
        };
        Backend {
            name: name.into(),
            levels: self.recordings.levels().iter().map(level).collect(),
            worker: Arc::new(self),
            clock: Clock::Simulated,
            code: None,
            tools: None,
        }
    }

    /// The recorded call that answers a request, with its position among those about the question.
    fn find(&self, request: &Request) -> Result<(usize, &RecordedCall), String> {
        let Some(prompt) = &request.agent_prompt else {
            return Err("no recorded model wrote a specification".into());
        };
        let item = self.recordings.get(&prompt.question).ok_or("this task is not on record")?;
        let at = match prompt.readings.is_empty() {
            true => self.first_layer(item, prompt, request),
            false => second_layer(item, prompt, request),
        }?;
        item.calls.get(at).map(|call| (at, call)).ok_or_else(|| "this task is not on record".into())
    }

    fn first_layer(&self, item: &RecordedItem, prompt: &AgentPrompt, request: &Request) -> Result<usize, String> {
        let alone = [TeamMember {
            id: request.agent.clone(),
            base: prompt.base.clone(),
            level: request.level,
            seed: request.seed,
            ..TeamMember::default()
        }];
        let team = prompt.team.as_ref().map_or(&alone[..], |team| team.as_slice());
        let own = team.iter().position(|member| member.id == request.agent);
        let (team, own) = own.map_or((&alone[..], 0), |own| (team, own));
        let sample = self.samples(item, team).get(own).copied().flatten();
        sample.ok_or_else(|| match item.calls.iter().any(|call| call.level == request.level) {
            true => format!("the record holds no reply of a `{}` of `{}` to this task", prompt.base, request.capacity),
            false => format!("the record holds no reply of `{}` to this task", request.capacity),
        })
    }

    /// The call that each agent of a team gets: its position. Agents that read others, and those that have no record, get none.
    fn samples(&self, item: &RecordedItem, team: &[TeamMember]) -> Vec<Option<usize>> {
        let mut given: Vec<Option<usize>> = vec![None; team.len()];
        // First what recorded readers read, in the order of the readers.
        for reader in team.iter().filter(|reader| !reader.parents.is_empty()) {
            let parents: Vec<&TeamMember> = reader.parents.iter().filter_map(|at| team.get(*at)).collect();
            let first_layer = |parent: &&TeamMember| parent.parents.is_empty() && parent.round == reader.round;
            if parents.len() < reader.parents.len() || !parents.iter().all(first_layer) {
                continue;
            }
            let Some(read) = item.calls.iter().find_map(|call| what_it_read(item, call, reader, &parents)) else {
                continue;
            };
            let places = || reader.parents.iter().zip(&read);
            let open = |(at, call): (&usize, &usize)| match given.get(*at) {
                Some(Some(known)) => known == call,
                _ => !given.contains(&Some(*call)),
            };
            if places().all(open) {
                for (at, call) in places() {
                    if let Some(place) = given.get_mut(*at) {
                        *place = Some(*call);
                    }
                }
            }
        }
        for at in 0..team.len() {
            let Some(member) = team.get(at).filter(|member| member.parents.is_empty()) else { continue };
            if given.get(at).copied().flatten().is_some() {
                continue;
            }
            let like = |other: &&TeamMember| {
                other.parents.is_empty()
                    && (other.level, &other.base, other.round) == (member.level, &member.base, member.round)
            };
            let alone = team.iter().filter(like).count() == 1;
            let rank = |(position, call): &(usize, &RecordedCall)| {
                let greedy = call.temperature == 0.0;
                let unfit = match self.pool {
                    SamplePool::All => false,
                    SamplePool::Sampled => greedy,
                    SamplePool::Auto => greedy != alone,
                };
                let taken = given.contains(&Some(*position));
                (taken, unfit, draw(member.seed, call.sample))
            };
            let candidates = item.calls.iter().enumerate().filter(|(_, call)| serves(call, member));
            let chosen = candidates.min_by_key(rank).map(|(position, _)| position);
            if let Some(place) = given.get_mut(at) {
                *place = chosen;
            }
        }
        given
    }
}

/// Whether a first-layer call serves an agent.
fn serves(call: &RecordedCall, member: &TeamMember) -> bool {
    call.reads.is_empty() && call.level == member.level && call.bases.contains(&member.base)
}

/// A number that orders the samples for one agent. The same seed orders them the same way, whichever of them there are.
fn draw(seed: u64, sample: u32) -> u64 {
    Random::new(seed ^ u64::from(sample) << 40).next_u64()
}

/// The positions of the calls that a recorded reader read, if a team's reader and its parents are of the same kind.
fn what_it_read(
    item: &RecordedItem,
    call: &RecordedCall,
    reader: &TeamMember,
    parents: &[&TeamMember],
) -> Option<Vec<usize>> {
    let fits = call.level == reader.level && call.bases.contains(&reader.base) && call.reads.len() == parents.len();
    if !fits || call.reads.is_empty() {
        return None;
    }
    let read = |((level, sample), parent): (&(usize, u32), &&TeamMember)| {
        let wanted = |call: &RecordedCall| serves(call, parent) && call.level == *level && call.sample == *sample;
        item.calls.iter().position(wanted)
    };
    call.reads.iter().zip(parents).map(read).collect()
}

fn second_layer(item: &RecordedItem, prompt: &AgentPrompt, request: &Request) -> Result<usize, String> {
    let has_read = |call: &RecordedCall| {
        call.reads.len() == prompt.readings.len()
            && call.reads.iter().zip(&prompt.readings).all(|((level, sample), reading)| {
                let source =
                    |call: &&RecordedCall| call.reads.is_empty() && call.level == *level && call.sample == *sample;
                item.calls.iter().filter(source).any(|source| match call.sees_answers {
                    true => extract_or_all(&source.text).trim() == reading.trim(),
                    false => source.text.trim() == reading.trim(),
                })
            })
    };
    let fits = |call: &RecordedCall| {
        !call.reads.is_empty() && call.level == request.level && call.bases.contains(&prompt.base) && has_read(call)
    };
    let candidates = item.calls.iter().enumerate().filter(|(_, call)| fits(call));
    let chosen = candidates.min_by_key(|(_, call)| draw(request.seed, call.sample));
    chosen.map(|(at, _)| at).ok_or_else(|| {
        format!(
            "the record holds no `{}` of `{}` that reads what `{}` reads",
            prompt.base, request.capacity, request.agent
        )
    })
}

/// A recorded reply as an endpoint would give it.
fn serve(request: &Request, call: &RecordedCall) -> Result<Reply, AskError> {
    let model = call.model.to_string();
    let Some((tokens_in, tokens_out)) = call.tokens else {
        return finish(request, call.text.to_string(), model, SPEED, None);
    };
    let usage = |tokens_out| Usage { tokens_in, tokens_out, counted: false };
    if call.silent {
        let error = AskError::free(FailureKind::Program, "its program gave no answer: it printed nothing");
        let (cost, partial) = (FailedCost::Known(usage(tokens_out)), Some(call.text.to_string()));
        return Err(AskError { cost, partial, ..error });
    }
    if tokens_out > request.max_tokens {
        let kept = call.text.chars().count() as u64 * request.max_tokens / tokens_out.max(1);
        let cut: String = call.text.chars().take(usize::try_from(kept).unwrap_or(usize::MAX)).collect();
        let error = AskError::free(FailureKind::Truncated, "the reply did not fit into max_tokens");
        let cost = FailedCost::Known(usage(request.max_tokens));
        return Err(AskError { cost, partial: Some(cut), ..error });
    }
    Ok(Reply {
        text: call.text.to_string(),
        usage: usage(tokens_out),
        model: Some(model),
        simulated_s: Some(0.2 + tokens_in as f64 / 4000.0 + tokens_out as f64 / SPEED),
        confidence: None,
        truncated: call.truncated,
        tool_calls: Vec::new(),
    })
}

#[async_trait]
impl Worker for Recorded {
    async fn ask(&self, request: &Request) -> Result<Reply, AskError> {
        match (self.find(request), &self.on_miss) {
            (Ok((_, found)), _) => serve(request, found),
            (Err(_), Some(world)) => world.ask(request).await,
            (Err(fact), None) => Err(AskError::free(FailureKind::NotRecorded, fact)),
        }
    }

    /// Two agents that get the same sample make the same call.
    fn cache_key(&self, request: &Request) -> Option<Vec<u8>> {
        let (at, _) = self.find(request).ok()?;
        let mut key = request.agent_prompt.as_ref()?.question.trim().as_bytes().to_vec();
        key.extend(at.to_le_bytes());
        key.extend(request.max_tokens.to_le_bytes());
        Some(key)
    }

    fn has_cache_keys(&self) -> bool {
        true
    }

    fn wants_team(&self) -> bool {
        true
    }
}
