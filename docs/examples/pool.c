/* Four threads take jobs from a queue and write a log, which one at a time can. */
#include <pthread.h>
#include <unistd.h>

static pthread_mutex_t queue = PTHREAD_MUTEX_INITIALIZER, file = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;
static int jobs, done;

static __attribute__((noinline)) int next_job(void)
{
    pthread_mutex_lock(&queue);
    while (!jobs && !done)
        pthread_cond_wait(&more, &queue);
    int job = jobs ? jobs-- : 0;
    pthread_mutex_unlock(&queue);
    return job;
}

static __attribute__((noinline)) void write_log(void)
{
    pthread_mutex_lock(&file);
    usleep(500);
    pthread_mutex_unlock(&file);
}

static void *worker(void *unused)
{
    while (next_job())
        write_log();
    return unused;
}

static void give(int count, int is_last)
{
    pthread_mutex_lock(&queue);
    jobs += count;
    done = is_last;
    pthread_cond_broadcast(&more);
    pthread_mutex_unlock(&queue);
}

int main(void)
{
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], 0, worker, 0);
    for (int i = 0; i < 200; i++) {
        usleep(2000);
        give(3, 0);
    }
    give(0, 1);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], 0);
    return 0;
}
