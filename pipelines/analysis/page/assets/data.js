/* What is in the page: the head, columns of numbers, and blocks of texts, inflated when needed. */

const HEAD = JSON.parse(document.getElementById("head").textContent);
const ARRAYS = { f64: Float64Array, i32: Int32Array, u8: Uint8Array };
const MOST_BLOCKS = 12;

function decoded(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let at = 0; at < binary.length; at += 1) bytes[at] = binary.charCodeAt(at);
  return bytes;
}

/** The content of a block, as a Response: `.text()`, `.json()` or `.arrayBuffer()` of it. */
function inflated(id) {
  const bytes = decoded(document.getElementById(id).textContent);
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")));
}

const libraries = new Map();

/** Plotly or DataTables: inserted as a script whose hash the page's policy allows. */
function library(name) {
  if (!libraries.has(name)) {
    libraries.set(name, inflated(name).text().then((text) => {
      const script = document.createElement("script");
      script.textContent = text;
      document.head.append(script);
      return name === "plotly" ? globalThis.Plotly : globalThis.dataTables;
    }));
  }
  return libraries.get(name);
}

/** A set with its columns: `columns.reward[row]`, `slug("verdict", row)`. */
class SetData {
  constructor(head) {
    this.head = head;
    this.columns = {};
    this.slugs = {};
    this.blocks = new Map();
  }

  async load() {
    const read = async (block, type) => new ARRAYS[type](await inflated(`b${block}`).arrayBuffer());
    await Promise.all(this.head.columns.map(async ({ name, type, block, slugs }) => {
      this.columns[name] = await read(block, type);
      if (slugs.length) this.slugs[name] = slugs;
    }));
    this.groupsAt = await read(this.head.groups_at, "i32");
    this.prompts = await read(this.head.prompts, "i32");
    this.excerpts = await inflated(`b${this.head.excerpts}`).json();
    return this;
  }

  end(group) {
    return group + 1 < this.head.groups ? this.groupsAt[group + 1] : this.head.rows;
  }

  slug(name, row) {
    return this.slugs[name] ? this.slugs[name][this.columns[name][row]] : "";
  }

  /** The texts of all groups of a block, `null` where they are left out of the page. */
  block(at) {
    if (!this.blocks.has(at)) {
      if (this.blocks.size >= MOST_BLOCKS) this.blocks.delete(this.blocks.keys().next().value);
      this.blocks.set(at, inflated(`b${this.head.texts[at].block}`).json());
    }
    return this.blocks.get(at);
  }

  async texts(group) {
    const at = this.head.texts.findIndex((each) => group < each.first_group + each.groups);
    return (await this.block(at))[group - this.head.texts[at].first_group];
  }

  /** Rows whose texts contain `words`, as a Uint8Array; gives the browser time between blocks. */
  async search(words, isStopped) {
    const found = new Uint8Array(this.head.rows);
    const wanted = words.toLowerCase();
    const has = (value) => typeof value === "string" && value.toLowerCase().includes(wanted);
    for (const { first_group: first, block } of this.head.texts) {
      if (isStopped()) return null;
      const groups = await inflated(`b${block}`).json();
      groups.forEach((texts, at) => {
        if (!texts) return;
        const start = this.groupsAt[first + at];
        const whole = has(promptText(texts.prompt)) || has(texts.reference) || has(texts.prompt_id);
        texts.rows.forEach((row, place) => {
          const evidence = row[EVIDENCE] || [], ofTurns = (row.turns || []).flat();
          if (whole || Object.values(row).some(has) || evidence.some(({ text }) => has(text))
            || ofTurns.some(([, text]) => has(text))) found[start + place] = 1;
        });
      });
      await new Promise((resume) => setTimeout(resume));
    }
    return found;
  }
}

function jsonText(value) {
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** A prompt as one text: its messages with their roles, or the text that it is. */
function promptText(prompt) {
  if (!Array.isArray(prompt)) return prompt === null || prompt === undefined ? "" : jsonText(prompt);
  const isMessage = (each) => typeof each?.role === "string" && typeof each.content === "string";
  return prompt.map((each) => (isMessage(each) ? `${each.role}: ${each.content}` : jsonText(each))).join("\n\n");
}
