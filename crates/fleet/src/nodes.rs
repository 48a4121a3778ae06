//! The list of nodes: from the command line, from a running server, or from a cluster's list.

use crate::server::{self, Server};
use crate::state::{ApiAccess, NODES_MAX, Node};
use serde_json::Value;
use std::path::PathBuf;

/// Parses `NAME,SMB,RDMA,API[,HOST]`: addresses as HOST:PORT, API as ADDR:PORT, https://HOST:PORT or
/// the data directory of a server on this machine; missing ones are empty.
///
/// # Errors
/// The reason why it does not parse.
pub fn parse(text: &str) -> Result<Node, String> {
    let wrong = |why: &str| {
        format!(
            "'{text}': {why}; a node is NAME,SMB,RDMA,API[,HOST], such as n1,10.0.0.1:445,10.0.0.1:5445,/var/lib/cenote"
        )
    };
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    let [name, smb, rest @ ..] = parts.as_slice() else {
        return Err(wrong("it has a name and an address at least"));
    };
    if rest.len() > 3 {
        return Err(wrong("it has too many parts"));
    }
    if name.is_empty()
        || name.len() > 63
        || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    {
        return Err(wrong("a name has 1 to 63 letters, digits, '-', '_' and '.'"));
    }
    let part = |at: usize| rest.get(at).filter(|part| !part.is_empty()).map(|part| (*part).to_owned());
    for address in [Some((*smb).to_owned()), part(0)].into_iter().flatten() {
        if !is_address(&address) {
            return Err(wrong(&format!("'{address}' is not HOST:PORT")));
        }
    }
    let api = part(1).map(|api| match api.starts_with("https://") || is_address(&api) {
        true => ApiAccess::Address { address: api, token_file: None, ca_file: None },
        false => ApiAccess::Data(PathBuf::from(api)),
    });
    Ok(Node {
        name: (*name).to_owned(),
        smb: (*smb).to_owned(),
        rdma: part(0),
        api,
        share: String::new(),
        volume: None,
        host: part(2),
    })
}

fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let is_host = !host.is_empty() && !host.contains(['/', ' ', ',', '@', '\\']) && !host.starts_with('-');
    is_host && port.parse::<u16>().is_ok_and(|port| port > 0)
}

/// Returns the nodes behind one server, all of its cluster or itself alone, and whether they are a cluster.
///
/// # Errors
/// The server does not answer.
pub fn discover(access: &ApiAccess) -> Result<(Vec<Node>, bool), String> {
    let access = &first_of(access);
    let server = Server::connect(access)?;
    if let Some(listed) = server.cluster_nodes()? {
        let nodes = of_list(&listed, access)?;
        if nodes.len() > 1 {
            return Ok((nodes, true));
        }
    }
    let (smb, rdma) = server.listeners()?;
    let name = server::host_name();
    Ok((
        vec![Node {
            name,
            smb,
            rdma,
            api: Some(access.clone()),
            share: String::new(),
            volume: None,
            host: None,
        }],
        false,
    ))
}

/// A trial cluster on this machine keeps its nodes' data in `node-1`, `node-2` and so on of one directory, which may be given for all.
fn first_of(access: &ApiAccess) -> ApiAccess {
    match access {
        ApiAccess::Data(data) if !data.join(api::TOKEN_FILE).exists() && data.join("node-1").is_dir() => {
            ApiAccess::Data(data.join("node-1"))
        }
        other => other.clone(),
    }
}

/// The API of a node of a cluster: that of the list, else that of the data directory beside the one
/// that was asked.
fn api_of(name: &str, listed: Option<String>, access: &ApiAccess) -> Option<ApiAccess> {
    match (listed, access) {
        // The token of one node lets into all.
        (Some(address), ApiAccess::Data(data)) => {
            Some(ApiAccess::Address { address, token_file: Some(data.join(api::TOKEN_FILE)), ca_file: None })
        }
        (Some(address), ApiAccess::Address { token_file, ca_file, .. }) => {
            Some(ApiAccess::Address { address, token_file: token_file.clone(), ca_file: ca_file.clone() })
        }
        (None, ApiAccess::Data(data)) => {
            let beside = data.parent()?.join(name);
            beside.join(api::TOKEN_FILE).exists().then_some(ApiAccess::Data(beside))
        }
        (None, ApiAccess::Address { .. }) => None,
    }
}

/// Parses the nodes of `node list --json`: name, state, smb, rdma. Leaves out nodes that are not up.
///
/// # Errors
/// The list does not parse.
pub fn of_list(listed: &Value, access: &ApiAccess) -> Result<Vec<Node>, String> {
    let all = listed
        .as_array()
        .filter(|all| all.len() <= NODES_MAX)
        .ok_or("the list of nodes is no list of up to 64")?;
    let mut nodes = Vec::new();
    for one in all {
        let name = one.get("name").and_then(Value::as_str).ok_or("a node has no name")?;
        let state = one.get("state").and_then(Value::as_str).unwrap_or("up");
        // One that is drained serves nobody.
        if !state.eq_ignore_ascii_case("up") {
            continue;
        }
        let address = |kind: &str| {
            let own = one.get(kind).and_then(Value::as_str).and_then(bare);
            own.or_else(|| address_of(one.get("addresses"), kind))
        };
        let smb = address("smb").ok_or_else(|| format!("node {name} has no SMB address"))?;
        nodes.push(Node {
            name: name.to_owned(),
            smb,
            rdma: address("rdma"),
            api: api_of(name, address("api"), access),
            share: String::new(),
            volume: None,
            host: None,
        });
    }
    Ok(nodes)
}

/// The address of a kind: `addresses` is an object of addresses by kind, or a list of `KIND ADDRESS` or `KIND=ADDRESS`.
fn address_of(addresses: Option<&Value>, kind: &str) -> Option<String> {
    let found = match addresses? {
        Value::Object(by_kind) => match by_kind.get(kind)? {
            Value::Array(several) => several.first()?.as_str()?.to_owned(),
            one => one.as_str()?.to_owned(),
        },
        Value::Array(list) => list.iter().filter_map(Value::as_str).find_map(|entry| {
            let (name, address) = entry.split_once(['=', ' '])?;
            (name == kind).then(|| address.trim().to_owned())
        })?,
        _ => return None,
    };
    bare(&found)
}

/// An address without `http://`.
fn bare(text: &str) -> Option<String> {
    let bare = text.strip_prefix("http://").unwrap_or(text).to_owned();
    (bare.starts_with("https://") || is_address(&bare)).then_some(bare)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_read_from_words() {
        let node = parse("n1, 10.0.0.1:445, 10.0.0.1:5445, /var/lib/cenote, root.example").unwrap();
        assert_eq!((node.name.as_str(), node.smb.as_str()), ("n1", "10.0.0.1:445"));
        assert_eq!(node.rdma.as_deref(), Some("10.0.0.1:5445"));
        assert_eq!(node.api, Some(ApiAccess::Data("/var/lib/cenote".into())));
        assert_eq!(node.host.as_deref(), Some("root.example"));
        let node = parse("n2,[::1]:445,,https://n2:9446").unwrap();
        assert_eq!((node.rdma, node.host), (None, None));
        assert!(matches!(node.api, Some(ApiAccess::Address { .. })));
        assert_eq!(parse("n3,10.0.0.3:445").unwrap().api, None);
        for wrong in
            ["", "n", "n,10.0.0.1", "n,10.0.0.1:0", "a b,h:1", "n,h:1,-x:2", "n,h:1,,,,x", "n,user@h:1"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_clusters_list_is_read_in_its_forms() {
        let access = ApiAccess::Data("data".into());
        let listed = serde_json::json!([
            {"name": "n1", "state": "up", "pid": 7, "addresses": ["127.0.0.11"], "smb": "127.0.0.11:4455", "rdma": "127.0.0.11:5445"},
            {"name": "n2", "state": "down", "addresses": []},
            {"name": "n3", "addresses": ["smb=127.0.0.3:4455", "api 127.0.0.3:9445"]},
            {"name": "n4", "state": "Up", "addresses": {"smb": "127.0.0.4:4455", "rdma": ["127.0.0.4:5445"]}},
            {"name": "n5", "state": "drained", "smb": "127.0.0.5:4455"}
        ]);
        let nodes = of_list(&listed, &access).unwrap();
        let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        assert_eq!(names, ["n1", "n3", "n4"]);
        assert_eq!(
            (nodes[0].smb.as_str(), nodes[0].rdma.as_deref()),
            ("127.0.0.11:4455", Some("127.0.0.11:5445"))
        );
        assert_eq!((&nodes[0].api, &nodes[1].rdma), (&None, &None));
        assert_eq!(nodes[2].rdma.as_deref(), Some("127.0.0.4:5445"));
        assert!(matches!(&nodes[1].api, Some(ApiAccess::Address { address, token_file: Some(file), .. })
            if address == "127.0.0.3:9445" && file.ends_with("data/api.token")));
        assert!(of_list(&serde_json::json!({"nodes": 1}), &access).is_err());
        assert!(of_list(&serde_json::json!([{"name": "n1", "state": "up"}]), &access).is_err());
    }

    #[test]
    fn nodes_of_a_trial_cluster_are_found_beside_each_other() {
        let data = tempfile::tempdir().unwrap();
        for name in ["node-1", "node-2"] {
            std::fs::create_dir(data.path().join(name)).unwrap();
            std::fs::write(data.path().join(name).join(api::TOKEN_FILE), "x").unwrap();
        }
        let first = first_of(&ApiAccess::Data(data.path().into()));
        assert_eq!(first, ApiAccess::Data(data.path().join("node-1")));
        assert_eq!(api_of("node-2", None, &first), Some(ApiAccess::Data(data.path().join("node-2"))));
        assert_eq!(api_of("node-3", None, &first), None);
    }
}
