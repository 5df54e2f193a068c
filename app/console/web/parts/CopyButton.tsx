/** Copies a text, and says so. */
import { useState } from "preact/hooks";

export function CopyButton({ name, text }: { name: string; text(): string }) {
  const [isCopied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text());
    setCopied(true);
  };
  return (
    <button type="button" class="plain small" onClick={() => void copy()}>
      {isCopied ? "Copied" : name}
    </button>
  );
}
