//! Who asks the API.

pub use records::api_tokens::Role;
use std::sync::Arc;

/// Who asks, as a token proved it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// `None`: the holder of a server's token file.
    token: Option<Arc<str>>,
    role: Role,
}

impl Caller {
    /// Whoever can read a server's token file administers it.
    pub fn of_token_file() -> Self {
        Self { token: None, role: Role::Administrator }
    }

    /// The holder of a named token.
    pub fn of_token(name: &str, role: Role) -> Self {
        Self { token: Some(name.into()), role }
    }

    /// Name and role of the token; `None`: the holder of a server's token file.
    pub fn token(&self) -> Option<(&str, Role)> {
        self.token.as_deref().map(|name| (name, self.role))
    }

    pub fn role(&self) -> Role {
        self.role
    }

    /// As the audit log names it.
    pub fn actor(&self) -> String {
        self.token.as_deref().map_or_else(|| "api".to_owned(), |name| format!("api:{name}"))
    }

    /// Why the caller may not do what is for `role`; `None`: it may.
    pub fn lacks(&self, role: Role) -> Option<String> {
        let (name, own) = (self.token.as_deref().unwrap_or_default(), self.role);
        (own < role).then(|| {
            format!(
                "this needs the role {role}, and token '{name}' has the role {own}: use a token of that role (`cenote token create NAME --role {role}`)"
            )
        })
    }
}
