/** A modal window. The browser keeps the focus in it and closes it with Escape. */
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";

interface DialogProps {
  title: string;
  onClose(): void;
  children: ComponentChildren;
}

export function Dialog({ title, onClose, children }: DialogProps) {
  const element = useRef<HTMLDialogElement>(null);
  // The dialog gets the focus before the next key, which would act on the page otherwise.
  useLayoutEffect(() => {
    const before = document.activeElement;
    element.current?.showModal();
    return () => {
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  const onClick = (event: MouseEvent) => event.target === element.current && onClose();
  return (
    <dialog ref={element} onClose={onClose} onClick={onClick} aria-label={title}>
      <div class="stack dialog">
        <header class="row">
          <h2 class="grow">{title}</h2>
          <button class="plain" onClick={onClose}>
            Close
          </button>
        </header>
        {children}
      </div>
    </dialog>
  );
}
