//! A small pipelined loader: writes or reads one file in blocks, many in flight, verifies what it reads, and prints throughput
//! and its own CPU time.
//!
//! `load HOST[:PORT] SHARE FILE read|write|verify [--user NAME] [--password PW] [--size BYTES] [--block BYTES] [--depth N]`
//! `     [--rdma | --auto [--rdma-port PORT]] [--rdma-threshold BYTES] [--no-crc] [--count N] [--random] [--sign] [--encrypt] [--dialect 2.0.2|2.1|3.0|3.0.2|3.1.1] [--flush] [--json]`
//!
//! PORT is that of the transport: 445 for TCP and `--auto`, 5445 for `--rdma`, by default.
//!
//! `write` fills `--size` bytes with a pattern; `read` reads them (over and over until `--count` blocks), `verify` compares
//! every byte. Sizes take the suffixes K, M and G.

use smb::wire::Dialect;
use smb_client::{
    Client, ClientError, Credentials, Encryption, File, NtHash, OpenOptions, Options, RDMA_PORT, Signing,
    Token, Transport,
};
use std::collections::HashMap;
use std::error::Error;
use std::time::Instant;
use sys::{BufMut, Payload};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Read,
    Write,
    Verify,
}

struct Arguments {
    host: String,
    port: Option<u16>,
    share: String,
    file: String,
    mode: Mode,
    user: String,
    password: String,
    size_bytes: u64,
    block_bytes: u32,
    depth: usize,
    count: Option<u64>,
    is_random: bool,
    flush: bool,
    is_json: bool,
    options: Options,
}

fn size(text: &str) -> Result<u64, Box<dyn Error>> {
    let (digits, factor) = match text.chars().last() {
        Some('K' | 'k') => (&text[..text.len() - 1], 1 << 10),
        Some('M' | 'm') => (&text[..text.len() - 1], 1 << 20),
        Some('G' | 'g') => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    let number: u64 = digits.parse().map_err(|_| format!("not a size: {text}"))?;
    number.checked_mul(factor).ok_or_else(|| format!("too large: {text}").into())
}

fn arguments() -> Result<Arguments, Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let mut next = |what: &str| words.next().ok_or_else(|| format!("{what} is missing"));
    let server = next("HOST[:PORT]")?;
    let (host, port) = match server.rsplit_once(':') {
        Some((host, port)) => (host.to_owned(), Some(port.parse()?)),
        None => (server, None),
    };
    let (share, file) = (next("SHARE")?, next("FILE")?);
    let mode = match next("read, write or verify")?.as_str() {
        "read" => Mode::Read,
        "write" => Mode::Write,
        "verify" => Mode::Verify,
        other => return Err(format!("neither read, write nor verify: {other}").into()),
    };
    let options = Options { signing: Signing::IfRequired, ..Options::default() };
    let mut arguments = Arguments {
        host,
        port,
        share,
        file,
        mode,
        user: "guest".into(),
        password: String::new(),
        size_bytes: 64 << 20,
        block_bytes: 64 << 10,
        depth: 8,
        count: None,
        is_random: false,
        flush: false,
        is_json: false,
        options,
    };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} takes a value"));
        match word.as_str() {
            "--user" => arguments.user = value()?,
            "--password" => arguments.password = value()?,
            "--size" => arguments.size_bytes = size(&value()?)?,
            "--block" => arguments.block_bytes = u32::try_from(size(&value()?)?)?,
            "--depth" => arguments.depth = value()?.parse()?,
            "--count" => arguments.count = Some(value()?.parse()?),
            "--random" => arguments.is_random = true,
            "--flush" => arguments.flush = true,
            "--json" => arguments.is_json = true,
            "--rdma" => arguments.options.transport = Transport::Rdma,
            "--auto" => arguments.options.transport = Transport::Auto,
            "--rdma-port" => arguments.options.rdma_port = value()?.parse()?,
            "--rdma-threshold" => {
                let bytes = u32::try_from(size(&value()?)?)?;
                (arguments.options.rdma_read_bytes_min, arguments.options.rdma_write_bytes_min) =
                    (bytes, bytes);
            }
            "--no-crc" => arguments.options.rdma_crc = false,
            "--sign" => arguments.options.signing = Signing::Required,
            "--encrypt" => arguments.options.encryption = Encryption::Required,
            "--dialect" => {
                let name = value()?;
                let dialect = Dialect::ALL.into_iter().find(|dialect| dialect.name() == name);
                let dialect = dialect.ok_or_else(|| format!("no dialect: {name}"))?;
                (arguments.options.oldest, arguments.options.newest) = (dialect, dialect);
            }
            other => return Err(format!("unknown option: {other}").into()),
        }
    }
    if arguments.block_bytes == 0 || arguments.depth == 0 || arguments.size_bytes == 0 {
        return Err("size, block and depth are at least 1".into());
    }
    Ok(arguments)
}

/// The pattern: eight bytes at a time that depend on their place alone.
fn pattern(offset: u64, bytes: &mut [u8]) {
    for (index, word) in bytes.chunks_mut(8).enumerate() {
        let place = offset + 8 * index as u64;
        let value = (place ^ 0x9E37_79B9_7F4A_7C15).wrapping_mul(0xBF58_476D_1CE4_E5B9).rotate_left(31);
        let value = value.to_le_bytes();
        word.copy_from_slice(&value[..word.len()]);
    }
}

/// The blocks in the order in which they are asked for.
struct Blocks {
    size_bytes: u64,
    block_bytes: u64,
    left: u64,
    next: u64,
    is_random: bool,
    seed: u64,
}

impl Blocks {
    fn new(arguments: &Arguments) -> Self {
        let block_bytes = u64::from(arguments.block_bytes);
        let blocks = arguments.size_bytes.div_ceil(block_bytes);
        Self {
            size_bytes: arguments.size_bytes,
            block_bytes,
            left: arguments.count.unwrap_or(blocks),
            next: 0,
            is_random: arguments.is_random,
            seed: 0x2545_F491_4F6C_DD1D,
        }
    }
}

impl Iterator for Blocks {
    type Item = (u64, u32);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let blocks = self.size_bytes.div_ceil(self.block_bytes);
        let index = if self.is_random {
            self.seed ^= self.seed << 13;
            self.seed ^= self.seed >> 7;
            self.seed ^= self.seed << 17;
            self.seed % blocks
        } else {
            self.next % blocks
        };
        self.next += 1;
        let offset = index * self.block_bytes;
        Some((offset, self.block_bytes.min(self.size_bytes - offset) as u32))
    }
}

/// User and system time of this process in seconds.
fn cpu_s() -> f64 {
    let usage = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    usage.tv_sec as f64 + usage.tv_nsec as f64 / 1e9
}

fn run(client: &mut Client, file: &File, arguments: &Arguments) -> Result<(u64, u64), Box<dyn Error>> {
    let mut blocks = Blocks::new(arguments);
    let mut asked: HashMap<Token, (u64, u32)> = HashMap::with_capacity(arguments.depth);
    let mut expected = vec![0; arguments.block_bytes as usize];
    let (mut operations, mut bytes) = (0, 0);
    loop {
        while asked.len() < arguments.depth
            && let Some((offset, len)) = blocks.next()
        {
            let token = if arguments.mode == Mode::Write {
                let mut block = BufMut::for_overwrite(len as usize);
                pattern(offset, &mut block);
                client.submit_write(file, offset, Payload::from(block.freeze()))?
            } else {
                client.submit_read(file, offset, len)?
            };
            asked.insert(token, (offset, len));
        }
        let Some((token, reply)) = client.next_reply()? else { return Ok((operations, bytes)) };
        let Some((offset, len)) = asked.remove(&token) else { continue };
        if arguments.mode == Mode::Write {
            if reply.written_bytes()? != len {
                return Err("a write was cut short".into());
            }
        } else {
            let data = reply.read_data()?;
            if data.len() != len as usize {
                return Err(format!("{} bytes instead of {len} at {offset}", data.len()).into());
            }
            if arguments.mode == Mode::Verify {
                let expected = &mut expected[..len as usize];
                pattern(offset, expected);
                if data[..] != *expected {
                    return Err(format!("wrong data in the block at {offset}").into());
                }
            }
        }
        operations += 1;
        bytes += u64::from(len);
    }
}

fn measure() -> Result<(), Box<dyn Error>> {
    let arguments = arguments()?;
    let credentials = Credentials::User {
        user: arguments.user.clone(),
        domain: String::new(),
        workstation: String::new(),
        hash: NtHash::from_password(&arguments.password),
        target_name: format!("cifs/{}", arguments.host),
    };
    let usual = if arguments.options.transport == Transport::Rdma { RDMA_PORT } else { 445 };
    let port = arguments.port.unwrap_or(usual);
    let mut client = Client::connect(&arguments.host, port, credentials, arguments.options.clone())?;
    if let Some(reason) = client.fallback() {
        eprintln!("load: no SMB Direct ({reason}): using TCP");
    }
    let tree = client.tree_connect(&arguments.share)?;
    let open = if arguments.mode == Mode::Write { OpenOptions::write() } else { OpenOptions::read() };
    let file = client.open(tree, &arguments.file, open)?;
    let limits = client.limits();
    let limit = if arguments.mode == Mode::Write { limits.write_bytes } else { limits.read_bytes };
    if arguments.block_bytes > limit {
        return Err(ClientError::Invalid("a block over the server's limit").into());
    }
    let (start, cpu) = (Instant::now(), cpu_s());
    let (operations, bytes) = run(&mut client, &file, &arguments)?;
    if arguments.flush && arguments.mode == Mode::Write {
        client.flush(&file)?;
    }
    let (elapsed_s, cpu_s) = (start.elapsed().as_secs_f64(), cpu_s() - cpu);
    let protection = if client.is_encrypted() || tree.must_encrypt {
        "encrypted"
    } else if client.is_signed() {
        "signed"
    } else {
        "plain"
    };
    client.close(file)?;
    let counters = client.counters();
    let transport = if client.is_rdma() { "SMB Direct" } else { "TCP" };
    let remote = counters.rdma_read_bytes + counters.rdma_written_bytes;
    let stalls = counters.smb_credit_stalls + counters.rdma_credit_stalls;
    let dialect = client.dialect().map_or("", Dialect::name);
    let (rate, per_s) = (bytes as f64 / elapsed_s / 1e6, operations as f64 / elapsed_s);
    let cpu_us = cpu_s * 1e6 / operations.max(1) as f64;
    if arguments.is_json {
        println!(
            "{{\"transport\":\"{transport}\",\"rdma_bytes\":{remote},\"credit_stalls\":{stalls},\"dialect\":\"{dialect}\",\"protection\":\"{protection}\",\"operations\":{operations},\"bytes\":{bytes},\
             \"elapsed_s\":{elapsed_s:.6},\"mb_per_s\":{rate:.3},\"operations_per_s\":{per_s:.1},\
             \"client_cpu_us_per_operation\":{cpu_us:.3}}}"
        );
    } else {
        println!(
            "SMB {dialect} over {transport} {protection}: {operations} operations, {bytes} bytes ({remote} by RDMA) in {elapsed_s:.3} s: {rate:.1} MB/s, \
             {per_s:.0} operations/s, client CPU {cpu_us:.2} us per operation, {stalls} credit stalls"
        );
    }
    Ok(())
}

fn main() {
    if let Err(error) = measure() {
        eprintln!("load: {error}");
        std::process::exit(1);
    }
}
