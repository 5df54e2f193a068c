/** Sizes of drawn elements: the width of one, and which rows of a long list are near the window. */
import type { RefObject } from "preact";
import { useEffect, useLayoutEffect, useState } from "preact/hooks";

export function useWidth(element: RefObject<HTMLElement>): number {
  const [width, setWidth] = useState(0);
  useEffect(() => {
    if (!element.current) return;
    const observer = new ResizeObserver(([entry]) => entry && setWidth(Math.floor(entry.contentRect.width)));
    observer.observe(element.current);
    return () => observer.disconnect();
  }, []);
  return width;
}

const MARGIN_ROWS = 40;

/** The rows from `first` up to `end` are drawn; the others are empty space of the same height. */
export function useWindow(list: RefObject<Element>, count: number, rowHeight: number): { first: number; end: number } {
  const [shown, setShown] = useState({ first: 0, end: 2 * MARGIN_ROWS });
  useEffect(() => {
    const measure = () => {
      if (!list.current) return;
      const above = -list.current.getBoundingClientRect().top;
      const first = Math.max(0, Math.floor(above / rowHeight) - MARGIN_ROWS);
      const end = Math.ceil((above + innerHeight) / rowHeight) + MARGIN_ROWS;
      setShown((before) => (Math.abs(before.first - first) < MARGIN_ROWS / 2 && Math.abs(before.end - end) < MARGIN_ROWS / 2 ? before : { first, end }));
    };
    measure();
    addEventListener("scroll", measure, { passive: true });
    addEventListener("resize", measure);
    return () => {
      removeEventListener("scroll", measure);
      removeEventListener("resize", measure);
    };
  }, [count]);
  const end = Math.min(count, Math.max(shown.end, 2 * MARGIN_ROWS));
  return { first: Math.min(shown.first, Math.max(0, end - 1)), end };
}

/** Scrolls a row of links sideways, so that the chosen one is seen on a narrow screen. */
export function useChosenInView(row: RefObject<HTMLElement>, selector: string, chosen: string): void {
  useLayoutEffect(() => {
    const link = row.current?.querySelector(selector);
    if (!row.current || !link) return;
    const [inner, outer] = [link.getBoundingClientRect(), row.current.getBoundingClientRect()];
    row.current.scrollLeft += inner.left + inner.width / 2 - (outer.left + outer.width / 2);
  }, [chosen]);
}
