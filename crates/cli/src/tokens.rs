//! `cenote token`.

use crate::args;
use crate::output::{Align, Column, json, say, show_utc, table};
use crate::printable::{eprintln, println};
use api::Role;
use api::requests::{CreateToken, CreatedToken, TokenView};
use api_client::{Client, Failure, escaped};

pub fn token(client: &Client, as_json: bool, command: args::Token) -> Result<(), Failure> {
    match command {
        args::Token::List => {
            let tokens: Vec<TokenView> = client.get("/tokens")?;
            if as_json {
                return json(&tokens);
            }
            let columns = ["NAME", "ROLE", "CREATED", "EXPIRES"].map(|name| Column(name, Align::Left));
            let rows = tokens.iter().map(|token| {
                let expires = match token.expires_unix_s {
                    Some(_) if token.expired => "expired".to_owned(),
                    Some(at) => show_utc(at as i64),
                    None => "never".to_owned(),
                };
                vec![
                    token.name.clone(),
                    token.role.to_string(),
                    show_utc(token.created_unix_s as i64),
                    expires,
                ]
            });
            table(
                &columns,
                rows.collect(),
                "no tokens but the server's own file; `cenote token create NAME --role ROLE` makes one",
            );
            Ok(())
        }
        args::Token::Create { name, role, expires } => {
            let role = match role {
                args::Role::Reader => Role::Reader,
                args::Role::Operator => Role::Operator,
                args::Role::Administrator => Role::Administrator,
            };
            let request = CreateToken { name, role, expires_in_s: expires.map(|period| period.as_secs()) };
            let made: CreatedToken = client.post("/tokens", &request)?;
            if as_json {
                return json(&made);
            }
            eprintln!(
                "cenote: token '{}' with the role {} is made; it is not shown again. Keep it in a file of mode 0600, and use it by --token-file FILE",
                made.name, made.role
            );
            println!("{}", made.token);
            Ok(())
        }
        args::Token::Delete { name } => {
            client.delete(&format!("/tokens/{}", escaped(&name)))?;
            say(as_json, format!("token '{name}' was deleted: its holder is refused from now on"))
        }
    }
}
