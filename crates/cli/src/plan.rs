//! `cenote plan`: a plan of what the options name, which needs a server only to begin with a running pool.

use crate::args;
use crate::output::{Align, Column, json, pairs, table};
use crate::printable::println;
use api::model::{Disk, Pool};
use api::planned::{Plan, PlanChoice, S2dChoice};
use api_client::{Client, Failure, escaped};
use plan::{Node, Request, nodes_of_pool};
use types::size::show_size;

pub fn plan(global: &args::Global, as_json: bool, options: &args::Plan) -> Result<(), Failure> {
    let plan = plan::plan(&request(global, options)?).map_err(|why| Failure::new(why.to_string()))?;
    if as_json {
        return json(&plan);
    }
    show(&plan, options);
    Ok(())
}

fn request(global: &args::Global, options: &args::Plan) -> Result<Request, Failure> {
    let mut nodes = match (&options.pool, &options.drives) {
        (Some(name), _) => {
            let client = Client::find(&global.access)?;
            let pool: Pool = client.get(&format!("/pools/{}", escaped(name)))?;
            nodes_of_pool(&pool, &client.get::<Vec<Disk>>("/disks")?, options.add_nodes)
        }
        (None, Some(drives)) => Node::equal(options.nodes.unwrap_or(1), &drives.0).collect(),
        (None, None) => Vec::new(),
    };
    nodes.extend(options.node.iter().flat_map(|drives| Node::equal(1, &drives.0)));
    Ok(Request {
        nodes,
        lose_nodes: options.lose_nodes,
        racks: options.racks,
        resiliency: options.resiliency.map(Into::into),
        reserve_disks: options.reserve_disks,
        network_gbps: options.network,
        protection: options.protection.into(),
        has_witness: options.witness,
    })
}

fn show(plan: &Plan, options: &args::Plan) {
    let racks = if plan.racks > 0 { format!(" in {} racks", plan.racks) } else { String::new() };
    pairs(&[
        ("nodes", format!("{}{racks}", plan.nodes)),
        (
            "drives",
            format!(
                "{}, {} raw, {} for data",
                plan.drives,
                show_size(plan.raw_bytes),
                show_size(plan.data_bytes)
            ),
        ),
        ("state survives", format!("{} of the nodes at once", plan.state_survives_nodes)),
        (
            "memory of a node",
            format!(
                "{} to begin with, {} of it what the stores hold",
                show_size(plan.memory.least_bytes),
                show_size(plan.memory.stores_bytes)
            ),
        ),
        ("network of a node", format!("{} Gb/s planned", options.network)),
    ]);
    show_capacity(&plan.choices);
    show_bounds(&plan.choices);
    show_s2d(&plan.s2d);
    println!();
    for note in &plan.notes {
        println!("- {note}");
    }
}

fn right(name: &'static str) -> Column {
    Column(name, Align::Right)
}

fn show_capacity(choices: &[PlanChoice]) {
    println!();
    let columns = [
        Column("RESILIENCY", Align::Left),
        right("USABLE"),
        right("OF RAW"),
        right("RESERVE"),
        right("UNUSABLE"),
        Column("APART BY", Align::Left),
        right("DRIVES"),
        right("NODES"),
        right("RACKS"),
        Column("REPAIRS A NODE", Align::Left),
    ];
    let rows = choices.iter().map(|choice| {
        vec![
            choice.resiliency.clone(),
            show_size(choice.usable_bytes),
            format!("{:.1} %", choice.efficiency_percent),
            format!("{} x, {}", choice.reserve_disks, show_size(choice.reserve_bytes)),
            show_size(choice.stranded_bytes),
            choice.apart_by.clone(),
            choice.survives_drives.to_string(),
            choice.survives_nodes.to_string(),
            choice.survives_racks.to_string(),
            if choice.repairs_largest_domain { "yes" } else { "no" }.to_owned(),
        ]
    });
    table(&columns, rows.collect(), "no resiliency is possible with these drives");
}

fn show_bounds(choices: &[PlanChoice]) {
    println!("\nThe most to expect of all nodes, and what bounds it:");
    let columns = [
        Column("RESILIENCY", Align::Left),
        right("4 KiB READS/s"),
        Column("", Align::Left),
        right("4 KiB WRITES/s"),
        Column("", Align::Left),
        right("READ"),
        Column("", Align::Left),
        right("WRITE"),
        Column("", Align::Left),
        right("NETWORK NEEDED"),
    ];
    let rows = choices.iter().map(|choice| {
        let bounds = &choice.bounds;
        let rate = |bytes: f64| format!("{}/s", show_size(bytes as u64));
        vec![
            choice.resiliency.clone(),
            format!("{:.0}", bounds.read_iops),
            bounds.read_iops_by.clone(),
            format!("{:.0}", bounds.write_iops),
            bounds.write_iops_by.clone(),
            rate(bounds.read_bytes_per_s),
            bounds.read_bytes_by.clone(),
            rate(bounds.write_bytes_per_s),
            bounds.write_bytes_by.clone(),
            format!("{:.1} Gb/s a node", bounds.network_bits_per_s / 1e9),
        ]
    });
    table(&columns, rows.collect(), "none");
}

fn show_s2d(choices: &[S2dChoice]) {
    println!("\nStorage Spaces Direct with as many servers, without reserve:");
    let columns = [
        Column("RESILIENCY", Align::Left),
        right("OF RAW"),
        Column("CODE", Align::Left),
        right("SURVIVES"),
        Column("HERE", Align::Left),
    ];
    let rows = choices.iter().map(|choice| {
        vec![
            choice.resiliency.clone(),
            format!("{:.1} %", choice.efficiency_percent),
            choice.code.clone(),
            choice.survives.to_string(),
            if choice.is_here { "yes" } else { "not built" }.to_owned(),
        ]
    });
    table(&columns, rows.collect(), "it has no figures for so many servers");
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn request_of(words: &str) -> Request {
        let words = ["cenote", "plan"].into_iter().chain(words.split_whitespace());
        let cli = args::Cli::try_parse_from(words).unwrap();
        let args::Command::Plan(options) = cli.command else { panic!() };
        request(&cli.global, &options).unwrap()
    }

    #[test]
    fn options_become_a_request() {
        let drives = |text: &str| text.parse::<plan::DriveList>().unwrap().0;
        let nodes: Vec<Node> =
            Node::equal(2, &drives("2x4TiB")).chain(Node::equal(1, &drives("10x4TiB"))).collect();
        assert_eq!(
            request_of(
                "--nodes 2 --drives 2x4TiB --node 10x4TiB --lose-nodes 1 --racks 3 --resiliency two-way-mirror \
                 --reserve-disks 0 --network 25 --protection plain --witness"
            ),
            Request {
                nodes,
                lose_nodes: 1,
                racks: 3,
                resiliency: Some(api::model::Resiliency::TwoWayMirror),
                reserve_disks: Some(0),
                network_gbps: 25,
                protection: plan::Protection::Plain,
                has_witness: true,
            }
        );
        let one = Node::equal(1, &drives("2x4TiB")).collect();
        assert_eq!(request_of("--drives 2x4TiB"), Request { nodes: one, ..Request::default() });
        assert_eq!(request_of(""), Request::default());
    }
}
