//! Where a run stands: no IO, no clock, no randomness. Cloning it forks the run.

mod aggregate;

pub use aggregate::Aggregation;

use crate::answer::{answer_of, options_in};
use crate::code::CodeJob;
use crate::examples::Examples;
use crate::form::Form;
use crate::prompt::{self, Reading};
use crate::settings::OnParentFailure;
use crate::worker::{AgentPrompt, ChatMessage, Level, TeamMember};
use lemon_spec::{AnswerRule, BaseRole, Next, PLAIN, Plan, PlannedAgent, Share, Style};
use lemon_trace::{AgentStatus, Failure, FailureKind};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The state of one run.
#[derive(Debug, Clone)]
pub struct RunState {
    question: Arc<str>,
    form: Form,
    /// Those that the question lists, with their letters.
    options: Arc<[(char, String)]>,
    /// How each capacity replies.
    styles: Vec<Option<Style>>,
    /// Examples that the programs of agents passed, where they were run.
    tested: BTreeMap<usize, usize>,
    rounds: Vec<Plan>,
    members: Vec<Member>,
    on_parent_failure: OnParentFailure,
    withheld: Vec<(String, String)>,
    judge_role: Arc<BaseRole>,
    halted: bool,
}

/// An agent in a run.
#[derive(Debug, Clone)]
pub struct Member {
    /// What it is.
    pub agent: PlannedAgent,
    /// The round it belongs to, from 1.
    pub round: u32,
    /// How far it is.
    pub standing: Standing,
    /// It was added to decide between the others.
    pub is_judge: bool,
}

/// How far an agent is.
#[derive(Debug, Clone, PartialEq)]
pub enum Standing {
    /// Its parents are not done, or there was no room for it yet.
    Waiting,
    /// It was handed out.
    Running,
    Ended(AgentOutcome),
}

/// How an agent ended.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentOutcome {
    /// How.
    pub status: AgentStatus,
    /// Its reply. Shared, because forks and messages hold it too.
    pub reply: Option<Arc<str>>,
    /// How sure its model was of it, from 0 to 1, where it says.
    pub confidence: Option<f64>,
    /// Whether it was cut off at `max_tokens`.
    pub truncated: bool,
    /// Why there is none.
    pub failure: Option<Failure>,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Ask these agents; those in `skipped` ended without being asked.
    Go {
        /// Ready to be asked; they count as running from now on.
        ask: Vec<usize>,
        /// Ended because a parent failed.
        skipped: Vec<usize>,
    },
    /// Nothing until a running agent ends.
    Wait,
    /// Every agent of the round has ended, or will never start.
    RoundOver,
}

/// A message from one agent to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The sender's number.
    pub from: usize,
    /// How much of its output.
    pub share: Share,
    /// The text, or `None` if the sender failed.
    pub content: Option<Arc<str>>,
    /// Whether the reader sees it.
    pub delivered: bool,
}

impl RunState {
    /// A run without a team yet.
    pub fn new(question: &str, on_parent_failure: OnParentFailure, judge_role: Arc<BaseRole>) -> Self {
        let form = Form::of(question);
        RunState {
            question: question.into(),
            form,
            options: options(question, form),
            styles: Vec::new(),
            tested: BTreeMap::new(),
            rounds: Vec::new(),
            members: Vec::new(),
            on_parent_failure,
            withheld: Vec::new(),
            judge_role,
            halted: false,
        }
    }

    /// The same for a task whose answer has this form, whatever its question looks like.
    #[must_use]
    pub fn with_form(self, form: Form) -> Self {
        RunState { form, options: options(&self.question, form), ..self }
    }

    /// The same with the styles of these capacities.
    #[must_use]
    pub fn with_styles(self, levels: &[Level]) -> Self {
        RunState { styles: levels.iter().map(|level| level.style).collect(), ..self }
    }

    /// How an agent is asked to reply: in the style of its capacity, where that fits. An agent whose reply cannot be the
    /// answer does what its role says, and only a short answer can be printed by a program.
    pub fn style(&self, index: usize) -> Option<Style> {
        let agent = &self.members.get(index)?.agent;
        let style = self.styles.get(agent.level).copied().flatten().filter(|_| agent.base.answers)?;
        (style != Style::Program || self.form.is_short()).then_some(style)
    }

    /// Completion tokens at most of an agent's reply. A style shortens answers, and nothing else.
    pub fn most_tokens(&self, index: usize, level: &Level) -> u64 {
        let shortened = self.form.is_short() && self.style(index).is_some();
        if level.style.is_none() || shortened { level.max_tokens } else { level.long_tokens }
    }

    /// Whether an agent is a plain one, or has a style, and is the first of those that are asked the same.
    pub fn is_first_alike(&self, index: usize) -> bool {
        let Some((Member { agent, .. }, before)) = self.members.get(..=index).and_then(<[Member]>::split_last) else {
            return false;
        };
        let alike = |Member { agent: other, .. }: &Member| {
            let asked = |it: &PlannedAgent| (it.level, it.base.name.clone(), it.role.clone(), it.duty.clone());
            asked(other) == asked(agent) && other.parents == agent.parents
        };
        (agent.base.name == PLAIN || self.style(index).is_some()) && !before.iter().any(alike)
    }

    /// The options that the question lists, with their letters.
    pub fn options(&self) -> &[(char, String)] {
        &self.options
    }

    /// Withholds the message `from` → `to`: the reader never sees it.
    pub fn withhold(&mut self, from: &str, to: &str) {
        self.withheld.push((from.to_owned(), to.to_owned()));
    }

    /// Adds the team of the next round. Its plan was validated against [`RunState::ids`].
    pub fn add_round(&mut self, plan: Plan) {
        let round = self.round() + 1;
        let member =
            |agent: &PlannedAgent| Member { agent: agent.clone(), round, standing: Standing::Waiting, is_judge: false };
        self.members.extend(plan.agents().iter().map(member));
        self.rounds.push(plan);
    }

    /// What to do next, asking no more than `room` agents.
    pub fn next_step(&mut self, room: usize) -> Step {
        let (mut ask, mut skipped) = (Vec::new(), Vec::new());
        for index in 0..self.members.len() {
            if self.halted || self.standing(index) != Some(&Standing::Waiting) || !self.parents_ended(index) {
                continue;
            }
            if self.on_parent_failure == OnParentFailure::Skip && self.parent_failed(index) {
                let failure = Failure { kind: FailureKind::ParentFailed, message: "an agent it reads failed".into() };
                self.end(index, AgentOutcome::without_reply(AgentStatus::Skipped, failure));
                skipped.push(index);
            } else if ask.len() < room {
                self.set(index, Standing::Running);
                ask.push(index);
            }
        }
        if !ask.is_empty() || !skipped.is_empty() {
            return Step::Go { ask, skipped };
        }
        let busy = |member: &Member| match member.standing {
            Standing::Running => true,
            Standing::Waiting => !self.halted,
            Standing::Ended(_) => false,
        };
        if self.members.iter().any(busy) {
            return Step::Wait;
        }
        match self.add_judge() {
            Some(judge) => Step::Go { ask: vec![judge], skipped },
            None => Step::RoundOver,
        }
    }

    /// What `index` reads of its parents.
    pub fn deliveries(&self, index: usize) -> Vec<Delivery> {
        let Some(reader) = self.members.get(index) else { return Vec::new() };
        let delivery = |from: usize| {
            let sender = self.members.get(from)?;
            let content = match &sender.standing {
                Standing::Ended(AgentOutcome { reply: Some(reply), .. }) if self.sees_answer_only(reader, sender) => {
                    Some(answer_of(reply, self.form).into())
                }
                Standing::Ended(outcome) => outcome.reply.clone(),
                _ => None,
            };
            let pair = |(a, b): &(String, String)| *a == sender.agent.id && *b == reader.agent.id;
            let delivered = content.is_some() && !self.withheld.iter().any(pair);
            Some(Delivery { from, share: sender.agent.share, content, delivered })
        };
        reader.agent.parents.iter().filter_map(|from| delivery(*from)).collect()
    }

    /// Whether a reader sees the answer alone: because the sender shares no more, or because its own role reads no more of
    /// tasks with a short answer. A judge that the run adds sees what its role says: it has to compare what can be compared.
    fn sees_answer_only(&self, reader: &Member, sender: &Member) -> bool {
        let shared = sender.agent.share == Share::Answer && !reader.is_judge;
        shared || reader.agent.base.reads == Share::Answer && self.form.is_short()
    }

    /// The conversation that asks `index`, given what it reads.
    pub fn conversation(&self, index: usize, deliveries: &[Delivery]) -> Vec<ChatMessage> {
        let Some(reader) = self.members.get(index) else { return Vec::new() };
        let style = self.style(index);
        prompt::conversation(&reader.agent, &self.question, self.form, style, &self.readings(deliveries))
    }

    /// The code of the fences in that conversation, if it has any.
    pub(crate) fn fence(&self, deliveries: &[Delivery]) -> Option<String> {
        let readings = self.readings(deliveries);
        (!readings.is_empty()).then(|| prompt::fence_for(&self.question, &readings))
    }

    fn readings<'s>(&'s self, deliveries: &'s [Delivery]) -> Vec<Reading<'s>> {
        // A withheld message leaves no mark; a failed sender does.
        let seen = deliveries.iter().filter(|delivery| delivery.delivered || delivery.content.is_none());
        seen.filter_map(|delivery| {
            let sender = &self.members.get(delivery.from)?.agent;
            Some(Reading { from: &sender.id, role: &sender.role, content: delivery.content.as_deref() })
        })
        .collect()
    }

    /// What that conversation is made of.
    pub fn agent_prompt(&self, index: usize, deliveries: &[Delivery]) -> Option<AgentPrompt> {
        let agent = &self.members.get(index)?.agent;
        let seen = deliveries.iter().filter(|delivery| delivery.delivered);
        Some(AgentPrompt {
            question: self.question.clone(),
            base: agent.base.name.clone(),
            role: agent.role.clone(),
            duty: agent.duty.clone(),
            readings: seen.filter_map(|delivery| delivery.content.clone()).collect(),
            team: None,
        })
    }

    /// All agents with the seeds of their calls (`seed` takes an id and a round), and the judge that the last round will add.
    pub fn team(&self, seed: impl Fn(&str, u32) -> u64) -> Vec<TeamMember> {
        let member = |member: &Member| TeamMember {
            id: member.agent.id.clone(),
            base: member.agent.base.name.clone(),
            level: member.agent.level,
            parents: member.agent.parents.clone(),
            round: member.round,
            seed: seed(&member.agent.id, member.round),
        };
        let mut team: Vec<TeamMember> = self.members.iter().map(member).collect();
        let judged = self.members.iter().any(|member| member.is_judge && member.round == self.round());
        if let Some(plan) = self.rounds.last().filter(|plan| plan.answer_rule() == AnswerRule::Judge && !judged) {
            let parents = plan.answer_from().to_vec();
            let level = parents.iter().filter_map(|index| self.members.get(*index)).map(|it| it.agent.level).max();
            let (id, round) = (self.free_id("judge"), self.round());
            let (base, level, seed) = (self.judge_role.name.clone(), level.unwrap_or(0), seed(&id, round));
            team.push(TeamMember { id, base, level, parents, round, seed });
        }
        team
    }

    /// Enters how `index` ended. A finished agent stays finished.
    pub fn end(&mut self, index: usize, outcome: AgentOutcome) {
        if let Some(member) = self.members.get_mut(index)
            && !member.is_done()
        {
            member.standing = Standing::Ended(outcome);
        }
    }

    /// The programs that the last round compares by its examples and that were not run yet, with the jobs that run them.
    /// `None`: it does not compare programs, or there are no examples.
    pub fn untested(&self) -> Option<Vec<(usize, CodeJob)>> {
        let examples = self.examples()?;
        let candidates = self.complete_or_all(self.done(self.rounds.last()?.answer_from()));
        let job = |index: usize| Some((index, examples.job(self.reply_of(index)?)));
        Some(candidates.into_iter().filter(|index| !self.tested.contains_key(index)).filter_map(job).collect())
    }

    /// The examples that the last round compares programs by.
    pub(crate) fn examples(&self) -> Option<Examples> {
        let compares = self.answer_rule() == Some(AnswerRule::Test);
        if compares && self.form == Form::Code { Examples::of(&self.question) } else { None }
    }

    /// Enters how many examples the program of an agent passed.
    pub fn enter_test(&mut self, index: usize, passed: usize) {
        self.tested.insert(index, passed);
    }

    fn reply_of(&self, index: usize) -> Option<&str> {
        match self.standing(index)? {
            Standing::Ended(outcome) => outcome.reply.as_deref(),
            _ => None,
        }
    }

    /// Enters a longer reply of an agent that is done: it was cut off, and went on.
    pub fn amend(&mut self, index: usize, outcome: AgentOutcome) {
        if self.reply_of(index) != outcome.reply.as_deref() {
            self.tested.remove(&index);
        }
        self.set(index, Standing::Ended(outcome));
    }

    /// From now on no agent starts.
    pub fn halt(&mut self) {
        self.halted = true;
    }

    /// Takes a run that ended early up again: every agent that is not done waits again.
    pub fn reopen(&mut self) {
        self.halted = false;
        for member in &mut self.members {
            if !member.is_done() {
                member.standing = Standing::Waiting;
            }
        }
    }

    /// Takes a run up again whose process died: every agent that was running waits again.
    pub fn release(&mut self) {
        for member in &mut self.members {
            if member.standing == Standing::Running {
                member.standing = Standing::Waiting;
            }
        }
    }

    /// What the last round says happens next.
    pub fn next(&self) -> Next {
        self.rounds.last().map_or(Next::Stop, Plan::next)
    }

    /// The rule of the last round.
    pub fn answer_rule(&self) -> Option<AnswerRule> {
        self.rounds.last().map(Plan::answer_rule)
    }

    /// The number of the last round, from 1; 0 before the first.
    pub fn round(&self) -> u32 {
        self.rounds.len() as u32
    }

    /// All agents of all rounds, judges included.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Their ids: what a later round may refer to.
    pub fn ids(&self) -> Vec<String> {
        self.members.iter().map(|member| member.agent.id.clone()).collect()
    }

    /// The number of the agent called `id`.
    pub fn find(&self, id: &str) -> Option<usize> {
        self.members.iter().position(|member| member.agent.id == id)
    }

    /// The task.
    pub fn question(&self) -> &str {
        &self.question
    }

    /// The form of the answer it wants.
    pub fn form(&self) -> Form {
        self.form
    }

    /// The answer this team would give had its agents ended so, without a call: what a rule makes of given
    /// replies. A judge is an agent too, and what it would say is not known.
    pub fn answer_with(&self, ended: impl Fn(&str) -> Option<AgentOutcome>) -> Option<String> {
        let mut state = self.clone();
        for index in 0..state.members.len() {
            if let Some(outcome) = state.members.get(index).and_then(|member| ended(&member.agent.id)) {
                state.amend(index, outcome);
            }
        }
        state.aggregate().answer
    }

    /// Adds the agent that decides, if the round asks for one and there is something to decide.
    pub fn add_judge(&mut self) -> Option<usize> {
        let plan = self.rounds.last()?;
        let candidates = self.done(plan.answer_from());
        let judged = self.members.iter().any(|member| member.is_judge && member.round == self.round());
        if plan.answer_rule() != AnswerRule::Judge || judged || candidates.len() < 2 || self.halted {
            return None;
        }
        // A judge is no weaker than the agents it judges.
        let strongest =
            candidates.iter().filter_map(|index| self.members.get(*index)).max_by_key(|member| member.agent.level)?;
        let agent = PlannedAgent {
            id: self.free_id("judge"),
            base: self.judge_role.clone(),
            role: self.judge_role.title.clone(),
            duty: self.judge_role.duty.clone(),
            level: strongest.agent.level,
            capacity: strongest.agent.capacity.clone(),
            depth: candidates.iter().filter_map(|index| self.members.get(*index)).map(|m| m.agent.depth).max()? + 1,
            parents: candidates,
            share: Share::Reply,
            tools: Vec::new(),
        };
        self.members.push(Member { agent, round: self.round(), standing: Standing::Running, is_judge: true });
        Some(self.members.len() - 1)
    }

    fn free_id(&self, wish: &str) -> String {
        let taken = |id: &str| self.find(id).is_some();
        let numbered = (2..).map(|number| format!("{wish}{number}"));
        std::iter::once(wish.to_owned()).chain(numbered).find(|id| !taken(id)).unwrap_or_default()
    }

    fn done(&self, indices: &[usize]) -> Vec<usize> {
        let done = |index: &usize| self.members.get(*index).is_some_and(Member::is_done);
        indices.iter().copied().filter(done).collect()
    }

    fn standing(&self, index: usize) -> Option<&Standing> {
        self.members.get(index).map(|member| &member.standing)
    }

    fn set(&mut self, index: usize, standing: Standing) {
        if let Some(member) = self.members.get_mut(index) {
            member.standing = standing;
        }
    }

    fn parents(&self, index: usize) -> impl Iterator<Item = &Member> {
        let parents = self.members.get(index).map(|member| member.agent.parents.as_slice()).unwrap_or_default();
        parents.iter().filter_map(|parent| self.members.get(*parent))
    }

    fn parents_ended(&self, index: usize) -> bool {
        self.parents(index).all(|parent| matches!(parent.standing, Standing::Ended(_)))
    }

    fn parent_failed(&self, index: usize) -> bool {
        self.parents(index).any(|parent| !parent.is_done())
    }
}

fn options(question: &str, form: Form) -> Arc<[(char, String)]> {
    if form == Form::Choice { options_in(question).into() } else { Arc::default() }
}

impl Member {
    /// It ended with a reply.
    pub fn is_done(&self) -> bool {
        matches!(self.standing, Standing::Ended(AgentOutcome { status: AgentStatus::Done, .. }))
    }
}

impl AgentOutcome {
    /// An agent that replied.
    pub fn done(reply: impl Into<Arc<str>>) -> Self {
        AgentOutcome {
            status: AgentStatus::Done,
            reply: Some(reply.into()),
            confidence: None,
            truncated: false,
            failure: None,
        }
    }

    /// An agent that did not.
    pub fn without_reply(status: AgentStatus, failure: Failure) -> Self {
        AgentOutcome { status, reply: None, confidence: None, truncated: false, failure: Some(failure) }
    }
}
