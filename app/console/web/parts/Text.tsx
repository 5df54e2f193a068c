/** Text of models, tools and users. It is always a text node. */
import { pieces } from "../core/text";

export function SafeText({ text }: { text: string }) {
  return (
    <>
      {pieces(text).map((piece, at) =>
        piece.isHidden ? (
          <span key={at} class="hidden-char" title="A character that can’t be seen">
            {piece.text}
          </span>
        ) : (
          piece.text
        ),
      )}
    </>
  );
}
