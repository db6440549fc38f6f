// Short messages about the last actions, announced to screen readers; each disappears by itself, errors later.

export interface Notice {
  id: number;
  text: string;
  bad: boolean;
}

class Notices {
  list = $state.raw<Notice[]>([]);
  #last = 0;

  show(text: string, bad = false): void {
    const id = (this.#last += 1);
    this.list = [...this.list.slice(-2), { id, text, bad }];
    setTimeout(() => this.dismiss(id), bad ? 12_000 : 5_000);
  }

  dismiss(id: number): void {
    this.list = this.list.filter((notice) => notice.id !== id);
  }
}

export const notices = new Notices();
