//! The items that the page of an evaluation shows in full, and the pages of their runs.

use super::pages;
use lemon_eval::report::items::{ItemDetail, ReplyDetail, chosen, item_detail, reply_detail};
use lemon_eval::{Evaluation, Row};
use lemon_exec::store::Store;
use lemon_rollout::Case;
use lemon_view::run::html_linked;
use lemon_workers::Tell;
use std::collections::HashMap;
use std::path::Path;

/// Pages of single runs that an evaluation writes. More would take more room than the rest of the report.
const MOST_PAGES: usize = 60;

/// Reads what was replied to the chosen items, and writes the pages of their first runs into `folder`. What cannot be read or
/// written costs a warning: the report is complete without it.
pub fn details(evaluation: &Evaluation, cases: &[Case], store: &Store, folder: &Path, warn: Tell) -> Vec<ItemDetail> {
    let cases: HashMap<(&str, usize), &Case> =
        cases.iter().map(|case| ((&*case.set, case.item.position), case)).collect();
    let mut reader = Reader { store, folder, pages: 0, faults: Vec::new() };
    let mut details = Vec::new();
    for rows in chosen(evaluation) {
        let case = rows.first().and_then(|row| cases.get(&(&*row.set, row.item)));
        let Some(case) = case else { continue };
        let mut detail = item_detail(case);
        detail.replies = rows.iter().map(|row| reader.reply(row)).collect();
        details.push(detail);
    }
    if let Some(first) = reader.faults.first() {
        let count = reader.faults.len();
        warn(&format!("warning: {count} of the runs on the page are without a reply or a page: {first}"));
    }
    details
}

struct Reader<'a> {
    store: &'a Store,
    folder: &'a Path,
    pages: usize,
    faults: Vec<String>,
}

impl Reader<'_> {
    fn reply(&mut self, row: &Row) -> ReplyDetail {
        let trace = match self.store.trace(&row.run_id) {
            Ok(trace) => trace,
            Err(error) => {
                self.faults.push(error.to_string());
                return reply_detail(row, None);
            }
        };
        let reply = reply_detail(row, Some(&trace));
        if self.pages >= MOST_PAGES {
            return reply;
        }
        let folder = self.folder.join("runs");
        match pages::put_page(&folder, &row.run_id, &html_linked(&trace, "../report.html", "The evaluation")) {
            Ok(path) => {
                self.pages += 1;
                let name = path.file_name().map(|name| format!("runs/{}", name.to_string_lossy()));
                ReplyDetail { page: name, ..reply }
            }
            Err(error) => {
                self.faults.push(error.to_string());
                reply
            }
        }
    }
}
