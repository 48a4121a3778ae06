//! SPNEGO tokens (RFC 4178, MS-SPNG): parsed within bounds, encoded canonically.

use super::der::{NotDer, Reader, element};

const SEQUENCE: u8 = 0x30;
const OBJECT_IDENTIFIER: u8 = 0x06;
const OCTET_STRING: u8 = 0x04;
const ENUMERATED: u8 = 0x0A;
const GENERAL_STRING: u8 = 0x1B;
/// RFC 2743 3.1: the frame of a first token.
const APPLICATION: u8 = 0x60;
/// Most mechanisms a client may propose.
const MECHANISMS_MAX: usize = 32;
/// The identifier of [`Mechanism::CenoteNode`].
const NODE_OID: [u8; 20] = [
    0x69, 0x81, 0xDE, 0x9B, 0xBD, 0x94, 0xC7, 0xC0, 0xEA, 0xBA, 0x8D, 0x9A, 0xA0, 0xF1, 0xBA, 0xA8, 0x83,
    0xFA, 0xB6, 0x13,
];
/// 1.3.6.1.5.5.2
const SPNEGO_OID: &[u8] = &[0x2B, 0x06, 0x01, 0x05, 0x05, 0x02];

const fn context(number: u8) -> u8 {
    0xA0 | number
}

/// A security mechanism by its object identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mechanism {
    /// 1.3.6.1.4.1.311.2.2.10
    Ntlm,
    /// 1.2.840.113554.1.2.2
    Kerberos,
    /// 1.2.840.48018.1.2.2, the identifier that Windows 2000 misspelled and everybody still sends.
    KerberosMicrosoft,
    /// 2.25.147686980516572261364260758202649320211, made of a UUID (X.667): a node of a cluster, by its certificate ([`super::node`]).
    CenoteNode,
}

impl Mechanism {
    const fn object_identifier(self) -> &'static [u8] {
        match self {
            Self::Ntlm => &[0x2B, 0x06, 0x01, 0x04, 0x01, 0x82, 0x37, 0x02, 0x02, 0x0A],
            Self::Kerberos => &[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x12, 0x01, 0x02, 0x02],
            Self::KerberosMicrosoft => &[0x2A, 0x86, 0x48, 0x82, 0xF7, 0x12, 0x01, 0x02, 0x02],
            Self::CenoteNode => &NODE_OID,
        }
    }

    fn from_object_identifier(bytes: &[u8]) -> Option<Self> {
        [Self::Ntlm, Self::Kerberos, Self::KerberosMicrosoft, Self::CenoteNode]
            .into_iter()
            .find(|mechanism| mechanism.object_identifier() == bytes)
    }
}

/// The client's first token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NegTokenInit<'a> {
    /// Proposed mechanisms in order of preference; `None` for those unknown here.
    pub(super) mechanisms: Vec<Option<Mechanism>>,
    /// The MechTypeList as it was encoded, over which mechListMIC is computed.
    pub(super) mechanisms_encoded: &'a [u8],
    /// The first token of the preferred mechanism.
    pub(super) token: Option<&'a [u8]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NegState {
    AcceptCompleted = 0,
    AcceptIncomplete = 1,
    Reject = 2,
    RequestMic = 3,
}

/// Every further token, of either side.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct NegTokenResp<'a> {
    pub(super) state: Option<NegState>,
    pub(super) mechanism: Option<Mechanism>,
    pub(super) token: Option<&'a [u8]>,
    pub(super) mechanism_list_mic: Option<&'a [u8]>,
}

/// A token as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NegotiationToken<'a> {
    Init(NegTokenInit<'a>),
    Resp(NegTokenResp<'a>),
}

impl<'a> NegotiationToken<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, NotDer> {
        let outer = Reader::new(bytes).element()?;
        match outer.tag {
            APPLICATION => {
                let mut frame = Reader::new(outer.content);
                if frame.expect(OBJECT_IDENTIFIER)? != SPNEGO_OID {
                    return Err(NotDer);
                }
                Self::parse_choice(frame.element()?)
            }
            _ => Self::parse_choice(outer),
        }
    }

    fn parse_choice(choice: super::der::Element<'a>) -> Result<Self, NotDer> {
        let fields = Reader::new(choice.content).expect(SEQUENCE)?;
        match choice.tag {
            0xA0 => parse_init(fields).map(Self::Init),
            0xA1 => parse_resp(fields).map(Self::Resp),
            _ => Err(NotDer),
        }
    }
}

fn parse_init(fields: &[u8]) -> Result<NegTokenInit<'_>, NotDer> {
    let mut fields = Reader::new(fields);
    let first = fields.element()?;
    if first.tag != context(0) {
        return Err(NotDer);
    }
    let mut mechanisms = Vec::new();
    let mut list = Reader::new(Reader::new(first.content).expect(SEQUENCE)?);
    while !list.is_empty() {
        if mechanisms.len() == MECHANISMS_MAX {
            return Err(NotDer);
        }
        mechanisms.push(Mechanism::from_object_identifier(list.expect(OBJECT_IDENTIFIER)?));
    }
    let mut token = None;
    while !fields.is_empty() {
        let field = fields.element()?;
        // Field 1 is reqFlags, 3 the hints or mechListMIC: neither matters in a client's first token.
        if field.tag == context(2) {
            token = Some(Reader::new(field.content).expect(OCTET_STRING)?);
        }
    }
    Ok(NegTokenInit { mechanisms, mechanisms_encoded: first.content, token })
}

fn parse_resp(fields: &[u8]) -> Result<NegTokenResp<'_>, NotDer> {
    let mut fields = Reader::new(fields);
    let mut resp = NegTokenResp::default();
    while !fields.is_empty() {
        let field = fields.element()?;
        let mut content = Reader::new(field.content);
        match field.tag {
            0xA0 => {
                resp.state = Some(match content.expect(ENUMERATED)? {
                    [0] => NegState::AcceptCompleted,
                    [1] => NegState::AcceptIncomplete,
                    [2] => NegState::Reject,
                    [3] => NegState::RequestMic,
                    _ => return Err(NotDer),
                });
            }
            0xA1 => resp.mechanism = Mechanism::from_object_identifier(content.expect(OBJECT_IDENTIFIER)?),
            0xA2 => resp.token = Some(content.expect(OCTET_STRING)?),
            0xA3 => resp.mechanism_list_mic = Some(content.expect(OCTET_STRING)?),
            _ => {}
        }
    }
    Ok(resp)
}

fn mechanism_list(mechanisms: &[Mechanism]) -> Vec<u8> {
    let list: Vec<u8> = mechanisms
        .iter()
        .flat_map(|mechanism| element(OBJECT_IDENTIFIER, mechanism.object_identifier()))
        .collect();
    element(SEQUENCE, &list)
}

fn init(fields: &[u8]) -> Vec<u8> {
    let mut frame = element(OBJECT_IDENTIFIER, SPNEGO_OID);
    frame.extend(element(context(0), &element(SEQUENCE, fields)));
    element(APPLICATION, &frame)
}

/// The server's hint in the NEGOTIATE response (MS-SPNG 2.2.1, NegTokenInit2): its mechanisms, in order
/// of preference.
pub fn server_hint(mechanisms: &[Mechanism]) -> Vec<u8> {
    let name = element(GENERAL_STRING, b"not_defined_in_RFC4178@please_ignore");
    let hints = element(SEQUENCE, &element(context(0), &name));
    let mut fields = element(context(0), &mechanism_list(mechanisms));
    fields.extend(element(context(3), &hints));
    init(&fields)
}

/// A client's first token; also the encoded list of mechanisms, over which mechListMIC goes.
pub(super) fn encode_init(mechanisms: &[Mechanism], token: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let list = mechanism_list(mechanisms);
    let mut fields = element(context(0), &list);
    fields.extend(element(context(2), &element(OCTET_STRING, token)));
    (init(&fields), list)
}

pub(super) fn encode_resp(resp: &NegTokenResp<'_>) -> Vec<u8> {
    let mut fields = Vec::new();
    if let Some(state) = resp.state {
        fields.extend(element(context(0), &element(ENUMERATED, &[state as u8])));
    }
    if let Some(mechanism) = resp.mechanism {
        fields.extend(element(context(1), &element(OBJECT_IDENTIFIER, mechanism.object_identifier())));
    }
    if let Some(token) = resp.token {
        fields.extend(element(context(2), &element(OCTET_STRING, token)));
    }
    if let Some(mic) = resp.mechanism_list_mic {
        fields.extend(element(context(3), &element(OCTET_STRING, mic)));
    }
    element(context(1), &element(SEQUENCE, &fields))
}
