// The first page: three answers, every disk, the next failure, repairs.

import { html } from "./dom.js";
import { Card, Chart, Command, Prose, State } from "./parts.js";
import { baseName, count, rate, seconds, size, TONES, tone } from "./words.js";

const Answer = ({ question, answer, id }) => html`
  <section class=${`card answer-card ${tone(answer.verdict)}`} id=${id} data-verdict=${answer.verdict}>
    <h2>${question}</h2>
    <p class="verdict"><span class="sign" aria-hidden="true">${TONES[tone(answer.verdict)]}</span><span>${answer.answer}</span></p>
    ${answer.because.length > 0 && html`<ul>${answer.because.map((sentence) => html`<li>${sentence}</li>`)}</ul>`}
  </section>`;

const DiskTile = ({ disk }) => html`
  <a class=${`tile ${tone(disk.status === "ok" ? disk.health : disk.status)}`} href="#disks" data-disk=${disk.id} title=${`${disk.path}: ${disk.status}`}>
    <b>${baseName(disk.path)}</b>
    <${State} of=${disk.status === "ok" ? disk.health : disk.status} />
    <small>${disk.node ? `${disk.node} · ` : ""}${size(disk.allocated_bytes)} of ${size(disk.size_bytes)}</small>
  </a>`;

const Repair = ({ repair }) => html`<div class="repair">
  <p><b>${repair.what}</b> <span class="quiet">job ${repair.job}</span></p>
  <p>${repair.done_percent === null ? "" : `${repair.done_percent.toFixed(0)} % done`}${repair.bytes_per_s ? `, ${rate(repair.bytes_per_s)}` : ""}${repair.remaining_s === null ? ", time left not known" : `, ${seconds(repair.remaining_s)} left`}</p>
  <p>${repair.slowed_by.length ? html`Slowed by: <${Prose} text=${repair.slowed_by.join("; ")} />` : "Nothing known slows it."}</p>
</div>`;

export const Overview = ({ live, samples }) => {
  const times = samples.map((sample) => sample.at);
  const iops = [times, samples.map((sample) => sample.read.operations_per_s), samples.map((sample) => sample.write.operations_per_s)];
  const risks = live.cluster?.at_risk ?? [];
  return html`
    <h1>Overview</h1>
    <div class="answers">
      <${Answer} id="safe" question="Is my data safe?" answer=${live.answers.safe} />
      <${Answer} id="rdma" question="Am I on RDMA?" answer=${live.answers.rdma} />
      <${Answer} id="fast" question="How fast is it?" answer=${live.answers.fast} />
    </div>
    <div class="columns">
      <${Card} id="next-failure" title="After the next failure">
        ${live.next_failures.length === 0 && html`<p class="empty">There is no pool yet. <${Command} line="cenote pool create NAME DISK..." /></p>`}
        ${live.next_failures.map((next) => html`<div class="next" key=${next.lost}>
          <p><b>${next.lost}</b> of pool ${next.pool} lost</p>
          <p><${State} of=${next.lost_volumes.length || next.ends_quorum ? "no" : next.missing_bytes || next.unknown_volumes.length || next.waiting_volumes.length || next.ends_state ? "partly" : "yes"}
            word=${next.lost_volumes.length ? `data of ${next.lost_volumes.join(", ")} may be lost` : next.ends_quorum ? "no volume is served until it is back" : next.unknown_volumes.length ? `what would be left of ${next.unknown_volumes.join(", ")} is not known` : next.waiting_volumes.length ? `${next.waiting_volumes.join(", ")} cannot be written until it is back` : next.ends_state ? "nothing can be changed until it is back" : next.copies_left === null ? "no data at stake" : `${next.copies_left} ${next.copies_left === 1 ? "copy" : "copies"} of every block left`} /></p>
          <p>${next.left_bytes === null ? "free room is not known" : next.missing_bytes ? `${size(next.missing_bytes)} find no room on the others` : `${size(next.left_bytes)} free when repaired`}</p>
        </div>`)}
        ${risks.map((risk) => html`<p class="risk"><${State} of="partly" word=${risk} /></p>`)}
      </${Card}>
      <${Card} id="repairs" title="Being repaired">
        ${live.repairs.length === 0 ? html`<p class="empty">Nothing: all copies are up to date, or wait for a disk.</p>` : live.repairs.map((repair) => html`<${Repair} key=${repair.job} repair=${repair} />`)}
      </${Card}>
    </div>
    <${Card} title=${`Disks (${live.disks.length})`}>
      <div class="tiles">${live.disks.map((disk) => html`<${DiskTile} key=${disk.id} disk=${disk} />`)}</div>
    </${Card}>
    <div class="columns">
      <${Card} title="Last minutes"><${Chart} title="Operations a second" series=${["Reads", "Writes"]} data=${iops} write=${count} /></${Card}>
      <${Card} title="Health" extra=${html`<a href="#health">All</a>`}>
        ${live.health.issues.length === 0 ? html`<p class="empty"><${State} of="healthy" word="Nothing is wrong." /></p>` : html`<ul class="plain">${live.health.issues.slice(0, 6).map((issue) => html`<li key=${issue.code + issue.target}><${State} of=${issue.health} word=${issue.what} /></li>`)}</ul>`}
      </${Card}>
    </div>`;
};
