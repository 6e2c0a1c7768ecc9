/*
 * What the counters of virtual memory count. The argument is the amount that is added.
 *
 * A probe without a clause is of a counter that Linux cannot have, or has no place for. Its reason is in
 * crates/dtrace/src/absent.txt.
 */

provider vminfo {
	probe anonfree(uint64_t N);
	probe anonpgin(uint64_t N);
	probe anonpgout(uint64_t N);
	probe as_fault(uint64_t N);
	probe cow_fault(uint64_t N);
	probe dfree(uint64_t N);
	probe execfree(uint64_t N);
	probe execpgin(uint64_t N);
	probe execpgout(uint64_t N);
	probe fsfree(uint64_t N);
	probe fspgin(uint64_t N);
	probe fspgout(uint64_t N);
	probe hat_fault(uint64_t N);
	probe kernel_asflt(uint64_t N);
	probe maj_fault(uint64_t N);
	probe pgfrec(uint64_t N);
	probe pgin(uint64_t N);
	probe pgout(uint64_t N);
	probe pgpgin(uint64_t N);
	probe pgpgout(uint64_t N);
	probe pgrec(uint64_t N);
	probe pgrrun(uint64_t N);
	probe pgswapin(uint64_t N);
	probe pgswapout(uint64_t N);
	probe prot_fault(uint64_t N);
	probe rev(uint64_t N);
	probe scan(uint64_t N);
	probe softlock(uint64_t N);
	probe swapin(uint64_t N);
	probe swapout(uint64_t N);
	probe zfod(uint64_t N);
};

/* Faults of the processor. Bit 0 of the code: the page is there, and the access is not allowed. */
rawtp:exceptions::page_fault_user, rawtp:exceptions::page_fault_kernel /!(args[2] & 1)/ { as_fault(1); }
rawtp:exceptions::page_fault_user, rawtp:exceptions::page_fault_kernel /args[2] & 1/ { prot_fault(1); }

/* The kernel counts these at their end. It has a software counter, which fires at each. */
cpc:::major_faults-all-1 { maj_fault(1); }

/*
 * Pages of anonymous memory are the only ones that are movable and cleared by the allocator (__GFP_HIGHMEM,
 * __GFP_MOVABLE, __GFP_ZERO). A huge one is cleared later.
 */
rawtp:kmem::mm_page_alloc /(args[2] & 0x10a) == 0x10a && args[0] != NULL/ { zfod(1 << args[1]); }
fbt:vmlinux:do_huge_pmd_anonymous_page:entry { self->huge = (args[0]->flags & FAULT_FLAG_WRITE) != 0; }
fbt:vmlinux:do_huge_pmd_anonymous_page:return /self->huge && args[1] == 0/ { zfod((1 << 21) / _pagesize); }
fbt:vmlinux:do_huge_pmd_anonymous_page:return { self->huge = 0; }

/*
 * A page of its own for a process that writes to a shared one: if another page is in the place of the old one, or if
 * the page of a file was copied before it was there. The page of zeros (no struct page) is replaced by a cleared page:
 * that is no copy.
 */
inline uint64_t _frame[uint64_t PTE] = PTE & 0x000ffffffffff000;
fbt:vmlinux:do_wp_page:entry { self->shared = args[0]; }
fbt:vmlinux:do_wp_page:return
/self->shared != NULL && self->shared->pte != NULL && self->shared->page != NULL &&
    _frame[self->shared->pte->pte] != _frame[self->shared->orig_pte.pte]/
{
	cow_fault(1);
}
fbt:vmlinux:do_wp_page:return { self->shared = NULL; }
fbt:vmlinux:finish_fault:entry
{
	self->copies = args[0]->cow_page != NULL && (args[0]->flags & FAULT_FLAG_WRITE) && !(args[0]->vma->vm_flags & 8);
}
fbt:vmlinux:finish_fault:return /self->copies && args[1] == 0/ { cow_fault(1); }
fbt:vmlinux:finish_fault:return { self->copies = 0; }

/*
 * Requests for pages of the cache, and for anonymous pages, which are on a swap device. (A page that is read from there
 * belongs to no process yet.) Those that a device made of others passes on are not counted again.
 */
inline int _PAGES_OF_FILE = 1;
inline int _PAGES_OF_SWAP = 2;

inline int _is_swap[struct page *P] = (_page_flags[P] & 1 << PG_swapbacked) &&
    ((uintptr_t)P->mapping == 0 || ((uintptr_t)P->mapping & 3) == 1);
inline int _paged_page[struct page *P] = !_page_in_cache_io[P] ? 0 : _is_swap[P] ? _PAGES_OF_SWAP :
    _page_mapping[P] != 0 ? _PAGES_OF_FILE : 0;
inline int _paged_vec[struct bio_vec *V] = V == NULL ? 0 : _paged_page[(struct page *)_folio[V->bv_page]];

rawtp:block::block_bio_queue
{
	this->of = args[0]->bi_flags & 1 << BIO_CLONED ? 0 : _paged_vec[_io_vec[args[0]]];
	this->writes = args[0]->bi_opf & 1;
	this->pages = (args[0]->bi_iter.bi_size + _pagesize - 1) / _pagesize;
}
rawtp:block::block_bio_queue /this->of && !this->writes/ { pgin(1); pgpgin(this->pages); }
rawtp:block::block_bio_queue /this->of && this->writes/ { pgout(1); pgpgout(this->pages); }
rawtp:block::block_bio_queue /this->of == _PAGES_OF_SWAP && !this->writes/ { anonpgin(this->pages); }
rawtp:block::block_bio_queue /this->of == _PAGES_OF_SWAP && this->writes/ { anonpgout(this->pages); }
rawtp:block::block_bio_queue /this->of == _PAGES_OF_FILE && this->writes/ { fspgout(this->pages); }

/* A fault in memory that may be executed. Where this cannot be seen, these pages are as other pages of files. */
fbt:vmlinux:filemap_fault:entry { self->executes = (args[0]->vma->vm_flags & 4) != 0; }
fbt:vmlinux:filemap_fault:return { self->executes = 0; }
rawtp:block::block_bio_queue
/defined(fbt:vmlinux:filemap_fault:entry) && this->of == _PAGES_OF_FILE && !this->writes && self->executes/
{
	execpgin(this->pages);
}
rawtp:block::block_bio_queue
/defined(fbt:vmlinux:filemap_fault:entry) && this->of == _PAGES_OF_FILE && !this->writes && !self->executes/
{
	fspgin(this->pages);
}
rawtp:block::block_bio_queue
/!defined(fbt:vmlinux:filemap_fault:entry) && this->of == _PAGES_OF_FILE && !this->writes/
{
	fspgin(this->pages);
}

/*
 * Pages that the kernel looks at to free some, on the lists of pages that were not used of late: 0 for those of
 * processes, 2 for those of files. (6.1 has one more argument before it.) What is freed is of one kind.
 */
inline int _LRU_ACTIVE = 1;
rawtp:vmscan::mm_vmscan_lru_isolate
/args[3] != 0 && (defined(rawtp:vmscan::mm_vmscan_lru_isolate, args[7]) ? args[7] : args[6]) != _LRU_ACTIVE &&
    (defined(rawtp:vmscan::mm_vmscan_lru_isolate, args[7]) ? args[7] : args[6]) < 3/
{
	scan(args[3]);
}
rawtp:vmscan::mm_vmscan_lru_shrink_inactive /args[2] != 0/ { dfree(args[2]); }
rawtp:vmscan::mm_vmscan_lru_shrink_inactive /args[2] != 0 && args[5] == 0/ { anonfree(args[2]); }
rawtp:vmscan::mm_vmscan_lru_shrink_inactive /args[2] != 0 && args[5] != 0/ { fsfree(args[2]); }

/* The kernel's thread that frees memory begins. */
rawtp:vmscan::mm_vmscan_kswapd_wake { pgrrun(1); }
