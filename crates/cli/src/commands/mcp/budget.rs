//! What all runs of one server may spend together.

use std::sync::{Mutex, PoisonError};

/// Tokens that are left to the server, if they are limited. What a run may spend is taken before it starts.
#[derive(Debug)]
pub struct TotalBudget(Mutex<Option<u64>>);

impl TotalBudget {
    pub fn new(tokens: Option<u64>) -> Self {
        TotalBudget(Mutex::new(tokens))
    }

    /// Takes what a run may spend: at most `want`, or all that is left. `None` is no limit.
    ///
    /// # Errors
    /// Nothing is left.
    pub fn take(&self, want: Option<u64>) -> Result<Option<u64>, String> {
        let mut left = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(left) = left.as_mut() else { return Ok(want) };
        if *left == 0 {
            return Err("the token budget of this server (--total-tokens) is spent".to_owned());
        }
        let granted = want.map_or(*left, |want| want.min(*left));
        *left -= granted;
        Ok(Some(granted))
    }

    /// Gives back what a finished run did not spend.
    pub fn give_back(&self, granted: Option<u64>, spent: u64) {
        let mut left = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(left), Some(granted)) = (left.as_mut(), granted) {
            *left = left.saturating_add(granted.saturating_sub(spent));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_never_take_more_than_is_left() {
        let budget = TotalBudget::new(Some(100));
        assert_eq!(budget.take(Some(60)), Ok(Some(60)));
        assert_eq!(budget.take(Some(60)), Ok(Some(40)));
        assert!(budget.take(Some(1)).is_err());
        budget.give_back(Some(60), 50);
        assert_eq!(budget.take(None), Ok(Some(10)));
        assert!(budget.take(None).is_err());
        budget.give_back(Some(10), 30);
        assert!(budget.take(None).is_err(), "what was spent too much is not given back");
    }

    #[test]
    fn without_a_limit_every_run_has_its_own() {
        let budget = TotalBudget::new(None);
        assert_eq!((budget.take(None), budget.take(Some(7))), (Ok(None), Ok(Some(7))));
    }
}
