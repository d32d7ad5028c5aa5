//! What every page has: the stylesheet, the scripts, and the place it stands in.

use crate::app::Section;
use crate::markup::Markup;
use askama::Template;

/// The one stylesheet. Rules of a single page stand below `.page-run`, `.page-evaluation` or `.page-training`.
pub(crate) const STYLE: &str = include_str!("style.css");

/// Makes the copy buttons of rendered texts work, wherever they are on the page.
pub(crate) const COPY_JS: &str = include_str!("copy.js");

/// Where a page stands: alone in a file, or in the application, whose policy forbids styles and scripts inside of a page.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Host {
    /// What surrounds it in the application.
    pub shell: Option<Shell>,
}

/// What surrounds a page of the application.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shell {
    /// The entry of the navigation that it belongs to.
    pub place: Section,
    /// The name of its script.
    pub script: &'static str,
}

impl Host {
    /// A page that opens offline and loads nothing.
    pub const FILE: Host = Host { shell: None };

    /// A page of the application.
    pub const fn app(place: Section, script: &'static str) -> Host {
        Host { shell: Some(Shell { place, script }) }
    }

    pub fn is_file(&self) -> bool {
        self.shell.is_none()
    }

    /// The attribute that holds an element's style: the script of the application applies `data-style`, which holds nothing but
    /// numbers and colours of this crate.
    pub fn style(&self) -> &'static str {
        if self.is_file() { "style" } else { "data-style" }
    }
}

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
