/** Draws a component again only when one of its properties has changed. */
import { Component, h, type ComponentType, type FunctionComponent } from "preact";

export function memo<P extends object>(Inner: FunctionComponent<P>): ComponentType<P> {
  return class extends Component<P> {
    override shouldComponentUpdate(next: P): boolean {
      const names = Object.keys({ ...this.props, ...next }) as (keyof P)[];
      return names.some((name) => next[name] !== (this.props as P)[name]);
    }

    override render() {
      return h(Inner, this.props as P);
    }
  };
}
