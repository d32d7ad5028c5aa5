//! What a command that makes many runs may spend over all of them.

use crate::config::{Capacity, check_prices};
use crate::error::{WorkersError, WorkersErrorKind};
use crate::files::read_file;
use lemon_eval::SpendEstimate;
use lemon_exec::{BudgetMet, SharedBudget};
use lemon_trace::LimitKind;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// What all runs of a command may spend together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct SharedLimits {
    pub tokens: Option<u64>,
    /// US dollars.
    pub usd: Option<f64>,
}

/// What a command may spend and has spent, over several processes.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Spending {
    limits: SharedLimits,
    tokens: u64,
    usd: f64,
}

impl SharedLimits {
    /// These limits, and where there is none, those of before.
    pub fn or(self, before: SharedLimits) -> Self {
        SharedLimits { tokens: self.tokens.or(before.tokens), usd: self.usd.or(before.usd) }
    }

    /// Whether there is a limit.
    pub fn is_limited(&self) -> bool {
        self.tokens.is_some() || self.usd.is_some()
    }

    /// The budget that the runs share, if there is a limit. It cancels `cancel` when it is met.
    ///
    /// # Errors
    /// A limit on money where prices are missing.
    pub fn shared(
        self,
        levels: &[(String, Capacity)],
        cancel: &CancellationToken,
    ) -> Result<Option<Arc<SharedBudget>>, WorkersError> {
        if self.usd.is_some() {
            check_prices(levels)?;
        }
        Ok(self.is_limited().then(|| Arc::new(SharedBudget::new(self.tokens, self.usd, cancel.clone()))))
    }

    /// The same for a command that goes on in another process: limits and what is spent stand in a file. Where no limit is
    /// given, those of the file count.
    ///
    /// # Errors
    /// As [`SharedLimits::shared`]; or the file is there and cannot be read.
    pub fn kept_in(
        self,
        file: &Path,
        levels: &[(String, Capacity)],
        cancel: &CancellationToken,
    ) -> Result<(Self, Option<Arc<SharedBudget>>), WorkersError> {
        let before: Option<Spending> = match file.exists() {
            false => None,
            true => {
                let unreadable =
                    |error| WorkersError::new(format!("{} does not say what was spent: {error}", file.display()));
                Some(serde_json::from_str(&read_file(file)?).map_err(unreadable)?)
            }
        };
        let limits = self.or(before.map(|before| before.limits).unwrap_or_default());
        let Some(_) = limits.shared(levels, cancel)? else { return Ok((limits, None)) };
        let shared = SharedBudget::new(limits.tokens, limits.usd, cancel.clone());
        if let Some(Spending { tokens, usd, .. }) = before {
            shared.enter(tokens, usd);
        }
        let file = file.to_owned();
        let commit = move |tokens: u64, usd: f64| {
            let text = serde_json::to_string_pretty(&Spending { limits, tokens, usd }).map_err(std::io::Error::other);
            let new = file.with_extension("json.new");
            let folder = file.parent().map_or(Ok(()), std::fs::create_dir_all);
            let written = folder.and_then(|()| std::fs::write(&new, text?)).and_then(|()| std::fs::rename(&new, &file));
            written.map_err(|error| format!("{}: {error}", file.display()))
        };
        Ok((limits, Some(Arc::new(shared.journaled(Box::new(commit))))))
    }

    /// The limits in words.
    pub fn in_words(&self) -> String {
        let tokens = self.tokens.map(|limit| format!("{limit} tokens"));
        let usd = self.usd.map(|limit| format!("{limit} USD"));
        match tokens.into_iter().chain(usd).collect::<Vec<_>>() {
            limits if limits.is_empty() => "none".to_owned(),
            limits => limits.join(", "),
        }
    }

    /// The line that is shown before anything is spent.
    pub fn estimate(&self, estimate: &SpendEstimate, levels: &[(String, Capacity)]) -> String {
        let priced = !levels.is_empty() && levels.iter().all(|(_, level)| level.price.is_some());
        let amount = |tokens: f64, usd: f64| match priced {
            true => format!("{tokens:.0} tokens ({usd:.4} USD)"),
            false => format!("{tokens:.0} tokens"),
        };
        let SpendEstimate { runs, likely, likely_usd, at_most, at_most_usd, more } = *estimate;
        let each = likely / runs.max(1) as f64;
        let more = if more { ", without what is written only during the runs" } else { "" };
        let beyond = |limit: Option<f64>, likely: f64| limit.is_some_and(|limit| limit < likely);
        let short = beyond(self.tokens.map(|tokens| tokens as f64), likely) || beyond(self.usd, likely_usd);
        format!(
            "estimate: about {} ({runs} {} × {each:.0}, replies of {} tokens), at most {}{more}; budget: {}{}",
            amount(likely, likely_usd),
            if runs == 1 { "run" } else { "runs" },
            lemon_exec::LIKELY_REPLY,
            amount(at_most, at_most_usd),
            self.in_words(),
            if short { "; the budget is likely too small" } else { "" },
        )
    }
}

/// That the budget ended the command, if it did. `missing` says what was left undone, `way_on` the command that continues.
pub fn ended(shared: Option<&Arc<SharedBudget>>, missing: &str, way_on: &str) -> Option<WorkersError> {
    let shared = shared?;
    let BudgetMet { limit, needed, left } = shared.met()?;
    let (tokens, usd) = shared.spent();
    let (flag, fact) = match limit {
        LimitKind::Usd => {
            let fact = format!("{usd:.4} USD are spent, {left:.4} are left, and the next call may need {needed:.4}");
            ("--budget-usd X", fact)
        }
        _ => {
            let fact = format!("{tokens} tokens are spent, {left:.0} are left, and the next call may need {needed:.0}");
            ("--budget-tokens N", fact)
        }
    };
    let fact = format!("the budget is used up: {fact}; {missing}");
    Some(WorkersError::new(fact).hint(format!("{way_on} {flag}`")).kind(WorkersErrorKind::Budget))
}
