/** Images that are in a message. They are shown from memory; none is loaded from elsewhere. */
import { useEffect, useState } from "preact/hooks";
import type { Media } from "../../core/api/messages";

const SHOWN = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);

export function Images({ media }: { media: Media[] }) {
  return (
    <div class="row">
      {media.map((one, at) =>
        one.base64 && SHOWN.has(one.mediaType) ? (
          <Picture key={at} base64={one.base64} mediaType={one.mediaType} />
        ) : (
          <span key={at} class="badge quiet">
            {one.type} {one.mediaType}
          </span>
        ),
      )}
    </div>
  );
}

function Picture({ base64, mediaType }: { base64: string; mediaType: string }) {
  const [url, setUrl] = useState("");
  useEffect(() => {
    let made = "";
    try {
      const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
      made = URL.createObjectURL(new Blob([bytes], { type: mediaType }));
      setUrl(made);
    } catch {
      // Not base64: the alternative text says what it was.
    }
    return () => URL.revokeObjectURL(made);
  }, [base64, mediaType]);
  return url ? <img src={url} alt={`Image of a message (${mediaType})`} class="picture" /> : <span>{mediaType}</span>;
}
