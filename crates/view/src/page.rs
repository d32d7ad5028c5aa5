//! What every page has: the stylesheet and the scripts.

use crate::markup::Markup;
use askama::Template;

/// The one stylesheet. Rules of a single page stand below `.page-run`, `.page-evaluation` or `.page-training`.
const STYLE: &str = include_str!("style.css");

/// Makes the copy buttons of rendered texts work, wherever they are on the page.
const COPY_JS: &str = include_str!("copy.js");

pub(crate) fn style() -> Markup {
    Markup::trusted(STYLE)
}

pub(crate) fn run_script() -> Markup {
    Markup::trusted(format!("{}{COPY_JS}", include_str!("run/page.js")))
}

pub(crate) fn evaluation_script() -> Markup {
    Markup::trusted(format!("{}{COPY_JS}", include_str!("evaluation/page.js")))
}

/// Renders a template.
pub(crate) fn render(page: &impl Template) -> String {
    let mut html = String::with_capacity(64 * 1024);
    // Rendering fails where a value or a filter does, and none of ours can: all are strings and numbers.
    let _ = page.render_into(&mut html);
    html.push('\n');
    html
}
