//! A run with its grades: what reward terms are measured from.

use super::{Grades, RewardSettings};
use lemon_credit::answer;
use lemon_num::mean_of;
use lemon_trace::{AgentStatus, AgentSummary, Candidate, EventKind, Metrics, Summary, Trace};
use std::collections::{HashMap, HashSet};

/// A run with its grades, indexed by who read whom.
pub struct GradedRun<'a> {
    trace: &'a Trace,
    summary: Summary,
    metrics: Metrics,
    grades: &'a Grades,
    settings: &'a RewardSettings,
    /// Whom an agent really read: the senders of the messages delivered to it.
    read: HashMap<&'a str, Vec<&'a str>>,
    /// Who read an agent.
    readers: HashMap<&'a str, Vec<&'a str>>,
}

impl<'a> GradedRun<'a> {
    /// Indexes a run.
    pub fn new(trace: &'a Trace, grades: &'a Grades, settings: &'a RewardSettings) -> Self {
        let (mut read, mut readers): (HashMap<_, Vec<_>>, HashMap<_, Vec<_>>) = Default::default();
        for event in &trace.events {
            if let EventKind::Message { from, to, delivered: true, .. } = &event.kind {
                push_once(read.entry(to.as_str()).or_default(), from);
                push_once(readers.entry(from.as_str()).or_default(), to);
            }
        }
        GradedRun { trace, summary: trace.summary(), metrics: trace.metrics(None), grades, settings, read, readers }
    }

    /// What happened.
    pub fn trace(&self) -> &'a Trace {
        self.trace
    }

    /// The same, summed up.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// How the agents worked together.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Which answers are right.
    pub fn grades(&self) -> &'a Grades {
        self.grades
    }

    /// What the terms are measured by.
    pub fn settings(&self) -> &'a RewardSettings {
        self.settings
    }

    /// R3: for each graded critic or verifier that read a graded answer, whether it ended right: it corrected what was
    /// wrong, or kept what was right. For each planner with graded readers, the share of them that ended right.
    pub fn roles_held(&self) -> impl Iterator<Item = f64> {
        self.summary.agents.iter().filter_map(|agent| match agent.base.as_str() {
            "critic" | "verifier" => {
                let read = self.read.get(agent.id.as_str())?;
                let had_a_case = read.iter().any(|id| self.grade(id).is_some());
                self.grade(&agent.id).filter(|_| had_a_case)
            }
            "planner" | "decomposer" => {
                let readers = self.readers.get(agent.id.as_str())?;
                mean_of(readers.iter().filter_map(|id| self.grade(id)))
            }
            _ => None,
        })
    }

    /// R4: for each agent that ended, whether it is done at the first attempt and its output was used.
    pub fn processes(&self) -> impl Iterator<Item = f64> {
        let used = self.used();
        let ended = self.summary.agents.iter().filter_map(|agent| Some((agent, agent.status?)));
        ended.map(move |(agent, status)| {
            let clean = status == AgentStatus::Done && agent.attempts < 2 && used.contains(agent.id.as_str());
            f64::from(u8::from(clean))
        })
    }

    /// R6: for each critic, verifier or judge, whether its verdict is true. The verdict is whether it answers what most of
    /// those it read answer; the truth is whether that is right.
    pub fn verdicts(&self) -> impl Iterator<Item = f64> {
        let checks = |agent: &&AgentSummary| matches!(agent.base.as_str(), "critic" | "verifier" | "judge");
        self.summary.agents.iter().filter(checks).filter_map(|agent| {
            let own = agent.answer.as_deref()?;
            let read = self.read.get(agent.id.as_str())?;
            let answers = || read.iter().filter_map(|id| Some((*id, self.summary.agent(id)?.answer.as_deref()?)));
            let majority = answer::majority(answers().map(|(_, answer)| answer))?;
            let mut holders = answers().filter(|(_, given)| answer::key(given) == majority);
            let majority_right = holders.find_map(|(id, _)| self.grade(id))? > 0.5;
            let accepts = answer::key(own) == majority;
            Some(f64::from(u8::from(accepts == majority_right)))
        })
    }

    /// R7: for each aggregation of at least two candidates one of which is right, whether a right answer was taken.
    pub fn aggregations(&self) -> impl Iterator<Item = f64> {
        self.trace.events.iter().filter_map(|event| {
            let EventKind::Aggregate { candidates, chosen, answer, .. } = &event.kind else { return None };
            let right_among = candidates.iter().any(|candidate| self.grade(&candidate.agent) == Some(1.0));
            if candidates.len() < 2 || !right_among {
                return None;
            }
            let of_the_run = *answer == self.summary.answer;
            let team = || self.grades.team.filter(|_| of_the_run).map(|right| f64::from(u8::from(right)));
            chosen.as_deref().and_then(|chosen| self.grade(chosen)).or_else(team)
        })
    }

    /// Whether the times of the run say how parallel it was: not those of one call alone, which has nothing to be parallel
    /// to, nor those of a run that got replies from the cache in no time.
    pub fn took_its_time(&self) -> bool {
        let calls = self.summary.agents.iter().filter(|agent| agent.started.is_some());
        calls.clone().count() > 1 && !calls.into_iter().any(|agent| agent.reused)
    }

    fn grade(&self, id: &str) -> Option<f64> {
        self.grades.agents.get(id).map(|right| f64::from(u8::from(*right)))
    }

    /// The agents whose result another agent, an aggregation, or the orchestrator before another round has read.
    fn used(&self) -> HashSet<&str> {
        let mut used: HashSet<&str> = self.readers.keys().copied().collect();
        for event in &self.trace.events {
            if let EventKind::Aggregate { candidates, chosen, .. } = &event.kind {
                used.extend(candidates.iter().map(|Candidate { agent, .. }| agent.as_str()));
                used.extend(chosen.as_deref());
            }
        }
        let reviewed = self.summary.agents.iter().filter(|agent| agent.round < self.summary.rounds);
        used.extend(reviewed.map(|agent| agent.id.as_str()));
        used
    }
}

/// A message that a crash made be told twice is one message.
fn push_once<'a>(list: &mut Vec<&'a str>, id: &'a str) {
    if !list.contains(&id) {
        list.push(id);
    }
}
