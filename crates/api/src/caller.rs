//! The caller of an API request.

pub use records::api_tokens::Role;
use std::sync::Arc;

/// A caller, as a token proved it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// `None`: the holder of a server's token file.
    token: Option<Arc<str>>,
    role: Role,
}

impl Caller {
    /// Grants administration to every reader of the server's token file.
    pub fn of_token_file() -> Self {
        Self { token: None, role: Role::Administrator }
    }

    /// The holder of a named token.
    pub fn of_token(name: &str, role: Role) -> Self {
        Self { token: Some(name.into()), role }
    }

    /// Returns name and role of the token; `None`: the caller has a server's token file.
    pub fn token(&self) -> Option<(&str, Role)> {
        self.token.as_deref().map(|name| (name, self.role))
    }

    /// Returns the role that the caller's token grants.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Names the caller as the audit log does.
    pub fn actor(&self) -> String {
        self.token.as_deref().map_or_else(|| "api".to_owned(), |name| format!("api:{name}"))
    }

    /// Explains why the caller may not do work for `role`; `None`: it may.
    pub fn lacks(&self, role: Role) -> Option<String> {
        let (name, own) = (self.token.as_deref().unwrap_or_default(), self.role);
        (own < role).then(|| {
            format!(
                "this needs the role {role}, and token '{name}' has the role {own}: use a token of that role (`cenote token create NAME --role {role}`)"
            )
        })
    }
}
