//! What a table reads of a round, as the tokens of a prompt. The encoder and the table share nothing else.

use super::layout::{STAGES, Setting};
use crate::features::{TaskFeatures, TaskKind, featurize};
use lemon_exec::answer;
use lemon_exec::orchestrator::RoundResult;
use lemon_model::PolicyError;
use lemon_trace::AgentStatus;
use lemon_world::SKILLS;

/// What a table reads of a round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Scene {
    pub(super) setting: Setting,
    pub(super) skills: Skills,
    /// The agents of earlier rounds.
    pub(super) earlier: Vec<String>,
}

/// What duties can name, as positions among the skills of the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Skills {
    /// What the task needs; `None`: nothing that can be seen.
    needed: Option<usize>,
    /// What no task of its kind needs.
    other: usize,
}

impl Scene {
    /// The kind of task, the stage, whether another round may follow, what duties can name, and the bytes of the ids of
    /// earlier agents, each with a 0 behind it.
    pub(super) fn prompt(&self) -> Vec<u32> {
        let Scene { setting: Setting { kind, stage, review }, skills, earlier } = self;
        let needed = skills.needed.map_or(0, |skill| skill + 1);
        let head = [*kind, *stage, usize::from(*review), needed, skills.other].map(|it| it as u32);
        let ids = earlier.iter().flat_map(|id| id.bytes().chain([0]).map(u32::from));
        head.into_iter().chain(ids).collect()
    }

    pub(super) fn read(prompt: &[u32], kinds: usize) -> Result<Scene, PolicyError> {
        let setting = setting(prompt, kinds)?;
        let (Some([_, _, _, needed, other]), Some(ids)) = (prompt.first_chunk(), prompt.get(5..)) else {
            return Err(foreign());
        };
        let skills = Skills { needed: (*needed as usize).checked_sub(1), other: *other as usize };
        if [skills.needed.unwrap_or(0), skills.other].iter().any(|skill| *skill >= SKILLS.len()) {
            return Err(foreign());
        }
        let bytes: Option<Vec<u8>> = ids.iter().map(|byte| u8::try_from(*byte).ok()).collect();
        let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok()).ok_or_else(foreign)?;
        let earlier: Vec<String> = text.split_terminator('\0').map(str::to_owned).collect();
        // A later round follows earlier agents.
        if earlier.is_empty() != (setting.stage == 0) {
            return Err(foreign());
        }
        Ok(Scene { setting, skills, earlier })
    }
}

/// What of a prompt decides which probabilities hold.
pub(super) fn setting(prompt: &[u32], kinds: usize) -> Result<Setting, PolicyError> {
    let Some([kind, stage, review]) = prompt.first_chunk() else { return Err(foreign()) };
    let setting = Setting { kind: *kind as usize, stage: *stage as usize, review: *review != 0 };
    if setting.kind >= kinds || setting.stage >= STAGES {
        return Err(foreign());
    }
    Ok(setting)
}

fn foreign() -> PolicyError {
    PolicyError::Request("expected a prompt of this table's encoder, got another".to_owned())
}

impl Skills {
    /// The skills of a question.
    pub(super) fn of(features: &TaskFeatures) -> Skills {
        let needed = features.skills.first().and_then(|needed| SKILLS.iter().position(|skill| skill == *needed));
        // Of another family, so that it cannot help by chance where the question showed less than there is.
        let other = SKILLS.iter().rposition(|skill| skill.family != features.kind.family());
        Skills { needed, other: other.unwrap_or_default() }
    }

    /// The duty of each choice as it is written; `None`: that of the base role. All are plain words that need no quotes.
    pub(super) fn duty(self, choice: usize) -> Option<String> {
        let name = |skill: usize| SKILLS.get(skill).map(|skill| format!("Work out the {}.", skill.name));
        match choice {
            0 => None,
            1 => Some(self.needed.and_then(name).unwrap_or_else(|| "Work it out.".to_owned())),
            _ => name(self.other),
        }
    }
}

/// The distance of the borders between bands of difficulty.
const STEP: f64 = 0.8;

/// Which of so many kinds of task it is; [`super::FieldPromptEncoder::kind`] says how they are told apart.
pub(super) fn kind(features: &TaskFeatures, kinds: usize) -> usize {
    if kinds < 2 || features.kind == TaskKind::Knowledge {
        return 0;
    }
    let hardest = (kinds - 2) as f64;
    // The bins are centred on the mean difficulty, 0. What is no number falls into the first.
    1 + (features.difficulty / STEP + (hardest + 1.0) / 2.0).floor().clamp(0.0, hardest) as usize
}

/// The kind and the skills of a question.
pub(super) fn seen(question: &str, kinds: usize) -> (usize, Skills) {
    let features = featurize(question, None);
    (kind(&features, kinds), Skills::of(&features))
}

/// The stage: the first round, one after answers that agree, or one after answers that differ.
pub(super) fn stage(results: &[RoundResult<'_>]) -> usize {
    let key = |result: &RoundResult<'_>| {
        let reply = result.reply.filter(|_| result.status == AgentStatus::Done)?;
        Some(answer::vote_key(&answer::extract_or_all(reply)))
    };
    let mut keys = results.iter().map(key);
    match keys.next() {
        None => 0,
        Some(None) => 2,
        Some(first) => {
            if keys.all(|key| key == first) {
                1
            } else {
                2
            }
        }
    }
}
