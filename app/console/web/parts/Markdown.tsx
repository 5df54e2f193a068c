/** Markdown of models as nodes. No remote image is loaded, and links show their host. */
import type { Nodes } from "mdast";
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { parseMarkdown, safeLink } from "../core/markdown";
import { SafeText } from "./Text";

export function Markdown({ text }: { text: string }) {
  const tree = useMemo(() => parseMarkdown(text), [text]);
  return <div class="markdown">{drawAll(tree.children)}</div>;
}

function drawAll(nodes: readonly Nodes[]): ComponentChildren {
  return nodes.map((node, at) => <One key={at} node={node} />);
}

function One({ node }: { node: Nodes }) {
  switch (node.type) {
    case "text":
      return <SafeText text={node.value} />;
    case "paragraph":
      return <p>{drawAll(node.children)}</p>;
    case "emphasis":
      return <em>{drawAll(node.children)}</em>;
    case "strong":
      return <strong>{drawAll(node.children)}</strong>;
    case "inlineCode":
      return (
        <code>
          <SafeText text={node.value} />
        </code>
      );
    case "code":
      return (
        <pre tabIndex={0}>
          <code>
            <SafeText text={node.value} />
          </code>
        </pre>
      );
    case "heading":
      // The page has its own headings, so those of a message are no landmarks.
      return (
        <p>
          <strong>{drawAll(node.children)}</strong>
        </p>
      );
    case "list":
      return node.ordered ? (
        <ol start={node.start ?? 1}>{drawAll(node.children)}</ol>
      ) : (
        <ul>{drawAll(node.children)}</ul>
      );
    case "listItem":
      return <li>{drawAll(node.children)}</li>;
    case "blockquote":
      return <blockquote>{drawAll(node.children)}</blockquote>;
    case "break":
      return <br />;
    case "thematicBreak":
      return <hr />;
    case "link":
      return <Link url={node.url}>{drawAll(node.children)}</Link>;
    case "image":
      return <span class="quiet">[image not loaded: {node.alt || safeLink(node.url)?.host || "no text"}]</span>;
    case "table":
      return (
        <table>
          <tbody>{drawAll(node.children)}</tbody>
        </table>
      );
    case "tableRow":
      return <tr>{drawAll(node.children)}</tr>;
    case "tableCell":
      return <td>{drawAll(node.children)}</td>;
    case "html":
      return <SafeText text={node.value} />;
    default:
      return null;
  }
}

function Link({ url, children }: { url: string; children: ComponentChildren }) {
  const safe = safeLink(url);
  if (!safe) return <span>{children}</span>;
  return (
    <span>
      <a href={safe.href} rel="noopener noreferrer" target="_blank">
        {children}
      </a>{" "}
      <span class="quiet tiny">({safe.host || safe.pathname})</span>
    </span>
  );
}
