//! Which class each tool belongs to, by globs on its name. Never reads a request.

use plimsoll_model::{GlobError, Globs, ToolClass};

/// Globs on tool names, by class. Names are compared in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolClasses {
    /// Search and listing.
    pub bulk: Vec<String>,
    /// Reading files.
    pub read: Vec<String>,
    /// Running commands.
    pub shell: Vec<String>,
    /// Changing files.
    pub write: Vec<String>,
}

impl Default for ToolClasses {
    fn default() -> Self {
        let list = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        Self {
            bulk: list(&[
                "grep",
                "glob",
                "ls",
                "find",
                "search",
                "list",
                "list_*",
                "*_search",
                "search_*",
                "websearch",
                "webfetch",
                "web_fetch",
                "fetch",
                "codebase_search",
                "tool_search",
            ]),
            read: list(&[
                "read",
                "read_*",
                "view",
                "cat",
                "open",
                "open_file",
                "notebookread",
            ]),
            shell: list(&[
                "bash",
                "shell",
                "sh",
                "exec",
                "exec_command",
                "execute_*",
                "run",
                "run_*",
                "local_shell",
                "terminal",
                "container.exec",
            ]),
            write: list(&[
                "write",
                "write_*",
                "edit",
                "edit_*",
                "multiedit",
                "create",
                "create_*",
                "apply_patch",
                "patch",
                "str_replace*",
                "replace*",
                "insert*",
                "notebookedit",
            ]),
        }
    }
}

/// Tool classes compiled for matching.
#[derive(Clone, Debug, Default)]
pub struct Classes {
    sets: Vec<(ToolClass, Globs)>,
}

impl Classes {
    /// Compiles the lists; the first class whose list matches a name has it.
    ///
    /// # Errors
    /// [`GlobError`] for the first glob that can't be read.
    pub fn new(classes: &ToolClasses) -> Result<Self, GlobError> {
        Ok(Self {
            sets: vec![
                (ToolClass::Bulk, Globs::new(&classes.bulk)?),
                (ToolClass::Read, Globs::new(&classes.read)?),
                (ToolClass::Shell, Globs::new(&classes.shell)?),
                (ToolClass::Write, Globs::new(&classes.write)?),
            ],
        })
    }

    /// The class of a tool. Names are compared in lower case.
    #[must_use]
    pub fn of(&self, name: &str) -> ToolClass {
        let name = name.to_lowercase();
        let found = self.sets.iter().find(|(_, globs)| globs.match_lower(&name));
        found.map_or(ToolClass::Unknown, |(class, _)| *class)
    }
}
